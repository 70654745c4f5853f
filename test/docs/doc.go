// Package docs holds the pages to the tree: what they link to exists, every make target they name
// is one, the files and functions that docs/architecture.md names are there, and the list of
// dependencies is that of go.mod.
package docs
