mod broken;
mod cloud;
mod runs;
