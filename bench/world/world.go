// Package world holds the servers that the benchmark starts for itself, PostgreSQL and Redis, and the meter that tells what they and the measured process
// cost. It knows nothing of jobs. Linux only: it reads /proc.
//
// Everything listens on 127.0.0.1, lives in folders of its own and ends with the benchmark. cmd/bench calls it.
package world
