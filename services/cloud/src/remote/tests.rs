mod codes;
mod contracts;
mod tls;
mod wrong;
