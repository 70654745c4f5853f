package world

// Mutation takes a rule away from the product: in some places of its sources something else stands. It is how the judge is judged.
type Mutation struct {
	Name  string
	Edits []edit
	// Faults are those that are to bring it to light; nil: all.
	Faults []string
}
