package coordination

import "slices"

// DeadLetterCycle returns the names of the Topics through which the dead letters of a Subscription
// of topic would come back to topic if they went into the Topic into: from topic back to topic. It
// returns nil if they never do.
//
// With before, only Subscriptions that were made before that one count. So of existing ones that
// make a cycle together the youngest is told of it.
func (s *State) DeadLetterCycle(topic, into string, before *Subscription) []string {
	from := map[string]string{into: topic} // by the name of a Topic: the one whose dead letters it takes
	for next := []string{into}; len(next) > 0; {
		at := next[0]
		next = next[1:]
		if at == topic {
			path := []string{topic}
			for t := from[topic]; t != topic; t = from[t] {
				path = append(path, t)
			}
			path = append(path, topic)
			slices.Reverse(path)
			return path
		}
		t := s.Topic(at)
		if t == nil {
			continue
		}
		for _, sub := range s.Subscriptions(t.ID) {
			to := sub.Spec.DeadLetter
			if to == "" || before != nil && sub.Made >= before.Made {
				continue
			}
			if _, seen := from[to]; !seen {
				from[to] = at
				next = append(next, to)
			}
		}
	}
	return nil
}
