// Package monitoring serves a broker's HTTP port: probes for Kubernetes, Prometheus metrics, /varz,
// /connz, /subsz, /jsz, /routez and /accountz for NATS tools, and /topics for the operator. Package
// system serves the pages for NATS tools to requests of clients, too.
//
// All of it is read-only, and nothing here keeps state: a process that dies loses nothing.
package monitoring
