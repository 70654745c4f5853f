// Package docs holds the pages to the tree: what they link to exists, every make target they name
// is one, and the list of dependencies is that of go.mod.
package docs
