// Package export writes tables into files of Parquet, which DuckDB, pandas, Spark and others read.
//
// Invariants:
//
//  1. A file has its name only once it is complete and on disk. Until then it is one with a name of
//     its own in the same folder, which Abort removes.
//  2. Memory is bounded by one row group, however long the table is.
//  3. Texts are UTF-8, whatever they were: readers refuse files with others.
//
// Every broker has this package in its binary, so the libraries that it uses have to be small.
//
// Rejected: Arrow files beside them. What reads Arrow reads Parquet, too, and arrow-go's writer
// adds 5 MB to the binary.
//
// The process's death leaves the unfinished file, as .NAME.*.tmp, and never a part under the name.
package export
