//! The server program over real sockets, one behaviour a test. `support` starts it on a
//! free port in a folder of its own, `mesh` several that know each other; `bus_peer` is a
//! node made by hand, and `bus_proxy` the network between nodes; each other file is a family
//! of behaviours.

mod admin;
mod aof;
mod aof_crash;
mod aof_damage;
mod attributes;
mod bus_links;
mod bus_peer;
mod bus_proxy;
mod cluster;
mod command_names;
mod config;
mod connection;
mod damaged_commands;
mod dead_letters;
mod fairness;
mod files;
mod forgetting;
mod hangup;
mod holds;
mod hostile_bus;
mod http;
mod http_client;
mod http_health;
mod http_numbers;
mod info;
mod limits;
mod membership;
mod memory;
mod mesh;
mod moves;
mod network_access;
mod order;
mod partition;
mod pipeline;
mod planned_restart;
mod process;
mod queue_policy;
mod redis_clients;
mod seeds;
mod startup;
mod support;
mod trace;
mod unfinished;
mod users;
mod waitjob;
