package filter

import (
	"sync"

	"cel.dev/cel-go/cel"
)

// language is what the conditions on one kind of things are written in.
type language struct {
	environment func() (*cel.Env, error)
	maxCost     uint64
	work        work   // what counts as done before something is judged
	judged, of  string // what is judged, and whose values these are, for errors
	example     string
	lean        bool // forgets cel-go's program, some KiB, if our own nodes judge
	results     bool // variables are results of functions
}

// records is the language of conditions on records.
var records = language{
	environment: sync.OnceValues(func() (*cel.Env, error) {
		return environment(
			cel.Variable(subjectName, cel.StringType),
			cel.Variable(headersName, cel.MapType(cel.StringType, cel.StringType)),
			cel.Variable(timeName, cel.TimestampType),
			cel.Variable(jsonName, cel.DynType))
	}),
	maxCost: maxCost,
	judged:  "record", of: "message",
	example: "json.total > 100",
}

// stored is the language of conditions on records with the attributes of their subjects.
var stored = language{
	environment: sync.OnceValues(func() (*cel.Env, error) {
		return environment(
			cel.Variable(subjectName, cel.StringType),
			cel.Variable(headersName, cel.MapType(cel.StringType, cel.StringType)),
			cel.Variable(timeName, cel.TimestampType),
			cel.Variable(jsonName, cel.DynType),
			cel.Variable(attributesName, cel.MapType(cel.StringType, cel.DynType)))
	}),
	maxCost: maxCost,
	judged:  "record", of: "message",
	example: "json.total > 100",
}

// subjects is the language of conditions on subjects and their attributes.
var subjects = language{
	environment: sync.OnceValues(func() (*cel.Env, error) {
		return environment(
			cel.Variable(subjectName, cel.StringType),
			cel.Variable(attributesName, cel.MapType(cel.StringType, cel.DynType)))
	}),
	maxCost: maxSubjectCost,
	work:    work{made: maxMade - maxSubjectMade, scanned: maxScanned - maxSubjectScanned},
	judged:  "subject", of: "subject",
	example: `attributes.room == "410"`,
	lean:    true,
}
