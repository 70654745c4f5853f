package work

// reservePart is the part of the places that one user leaves to others, and one connection of a
// user to the other ones: one of so many, and at least one. So whoever comes while all others wait
// for something that hangs is served at once, and a user that is alone is hardly slower.
const reservePart = 8

// places are how many items may run at a time: in all, of one user, and of one connection.
type places struct{ all, user, connection int }

func newPlaces(all int) places {
	user := withoutReserve(all)
	return places{all, user, withoutReserve(user)}
}

// withoutReserve returns how many of some places one of those who share them may have. Of fewer
// than four it is all of them: a third of the places would be too much to leave unused, and of a
// pool of four a single connection would have half.
func withoutReserve(all int) int {
	if all < 4 {
		return all
	}
	return all - max(1, all/reservePart)
}

// mayHave reports whether one of those who share some places may have one more. Each may have most.
// If there is a reserve, the last place goes to somebody without a place.
func mayHave(all, most, taken, own int) bool {
	return taken < all && own < most && (taken < all-1 || own == 0 || most == all)
}
