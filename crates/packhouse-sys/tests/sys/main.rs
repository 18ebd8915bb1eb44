mod files;
mod locks;
