mod crash;
mod fixture;
mod sets;
mod state;
mod tamper;
mod vectors;
