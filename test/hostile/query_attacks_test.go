//go:build e2e && linux

package hostile

import (
	"fmt"
	"strings"
)

// liveQueries has four clients open live queries, all different, set attributes, and end the
// queries with their subscriptions, as fast as they can. Half of the queries match all of these
// subjects. They end two rounds later: without its subscription a query would not be opened.
func liveQueries(f *force) error {
	return f.each(4, func(client int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		go f.listen(w)
		for round := 0; ; round++ {
			var text strings.Builder
			for n := range 100 {
				inbox := fmt.Sprintf("_INBOX.hostile.%d.%d.%d", client, round, n)
				where := fmt.Sprintf("attributes.n != %d.0", round*100+n)
				if n%2 == 0 {
					where = fmt.Sprintf(`attributes.tag.matches("^x{1,9}%d[a-z]*$")`, round*100+n)
				}
				open := fmt.Sprintf(`{"where":%q,"inbox":%q}`, where, inbox)
				set := fmt.Sprintf(`{"subject":"hostile.%d.%d","set":{"n":%d,"tag":"xx%d"}}`, client, n, round, round)
				sid := round*100 + n + 1
				if round >= 2 {
					fmt.Fprintf(&text, "UNSUB %d\r\n", sid-200)
				}
				fmt.Fprintf(&text, "SUB %s %d\r\n", inbox, sid)
				fmt.Fprintf(&text, "PUB $CARILLON.API.QUERY.OPEN %s %d\r\n%s\r\n", inbox, len(open), open)
				fmt.Fprintf(&text, "PUB $CARILLON.API.ATTRIBUTES.SET %s %d\r\n%s\r\n", inbox, len(set), set)
			}
			if _, err := w.Conn.Write([]byte(text.String())); err != nil {
				return err
			}
			f.sent.Add(200)
		}
	})
}
