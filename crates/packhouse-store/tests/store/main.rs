mod fixture;
mod state;
mod vectors;
