mod differential;
mod model;
