"""The state server: messages, staging, engine, Flight service, process, and how tasks start and reach it."""
