package plan

// Access is what etcd has of its users: with them brokers and the operator reach the keys of their
// Broker only, and membership is for the coordinators and the user root.
type Access struct {
	Known   bool   // etcd answered
	Lacks   string // what of roles and users is not as wanted; empty: nothing
	Enabled bool   // etcd refuses requests without a user, and those beyond its roles
	// Understood reports that pods of the present template know an etcd with users. Coordinators of
	// earlier versions could not be promoted in it after they lost their volume.
	Understood bool
	Trouble    string // why etcd did not answer
}

// admit gives the users of etcd their roles. That is harmless before etcd refuses anybody. Later it
// may be what gives brokers and the operator their keys back, so it waits for no gate, not even for
// an answer to the operator's own user.
func admit(f Facts) (Action, bool) {
	if !f.Access.Known || f.Access.Lacks == "" {
		return Action{}, false
	}
	return Action{Kind: GrantAccess, Reason: GrantingAccess, Message: "giving the users of etcd what they need: " + f.Access.Lacks}, true
}

// restrict has etcd refuse whoever is no user of it. The pass is another one than that which made
// the users, so what it relies on was read back.
func restrict(f Facts) (Action, bool) {
	if !f.Access.Known || f.Access.Enabled || unrestricted(f) != "" {
		return Action{}, false
	}
	return Action{Kind: EnableAccess, Reason: RestrictingAccess, Message: "from now on etcd asks for users: brokers and the operator reach the keys of this Broker only, and coordinators are added and removed by coordinators only"}, true
}

// Unrestricted returns why etcd does not ask for users, for people; empty: it does, or that is not
// known.
func Unrestricted(f Facts) string {
	if !f.Access.Known || f.Access.Enabled {
		return ""
	}
	if why := unrestricted(f); why != "" {
		return why
	}
	return "it begins to once nothing else is under way"
}

// unrestricted returns what etcd's users wait for; empty: nothing.
func unrestricted(f Facts) string {
	switch {
	case f.Access.Lacks != "":
		return "it has no users yet"
	case !f.Access.Understood:
		return "pods of an earlier version wait to be replaced"
	case f.Roots.Announced || f.Roots.Signing:
		return "the change to a CA for each kind of connections is not at its end"
	case !f.Etcd.Quorum || !f.Etcd.AllStarted || f.Etcd.Owner != OwnerOurs:
		return "not every coordinator has joined"
	case !f.Coordinators.current() || !f.Brokers.current():
		return "not every pod runs the present template and is ready"
	}
	return ""
}
