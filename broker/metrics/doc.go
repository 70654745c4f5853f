// Package metrics is the Prometheus collector of one broker. It reads counters at each scrape. No
// other package depends on it. It defines the names, labels and help texts of all metrics.
//
// When the process dies, all counters begin again at 0.
package metrics
