// Package chart tests charts/carillon with the helm binary that HELM names: what it renders,
// what it refuses, and what it may do in a cluster. Nothing here needs a cluster.
package chart
