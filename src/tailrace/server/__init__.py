"""The state server: protocol, staging, engine, Flight service, process, and how tasks start and reach it."""
