//! Layout ids, geometry, golden weights: the judge
