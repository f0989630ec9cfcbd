mod codes;
mod contracts;
mod wrong;
