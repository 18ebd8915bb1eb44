mod concurrency;
mod crash;
mod fixture;
mod real;
mod sets;
mod state;
mod tamper;
mod vectors;
