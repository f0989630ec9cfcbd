mod contracts;
mod wrong;
