// Package chart tests charts/carillon with the helm binary that HELM names: what it renders and
// refuses, and, against a real API server without nodes, what a release may do and leaves behind.
package chart
