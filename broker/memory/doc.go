// Package memory gives memory back to the system after a burst.
//
// The Go runtime collects garbage when the heap has doubled, and otherwise every two minutes. After
// a burst of connections, messages or manifests a quiet process allocates too little for that, and
// stays as large as the burst made it. Other processes of the node lack that memory, and the kernel
// may kill one of them. Brokers and the operator have their memory given back.
//
// Rules:
//
//  1. A collection is forced only if the runtime has made none lately, and the process has grown
//     since the last forced one. So a busy process is left to the runtime, and a quiet one that
//     needs its memory is collected a few times while it grows, and never again.
//  2. Two collections are made: the first one moves what sync.Pools hold aside, and the second one
//     frees it.
//
// The package keeps no state outside memory.
package memory
