package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/viewing"
)

// fetchedValue is a present value of a View, as it is answered.
type fetchedValue struct {
	Keys   []any          `json:"key"`
	From   string         `json:"from"`
	To     string         `json:"to"`
	Values map[string]any `json:"values"`
}

func newViewGetCommand() *cobra.Command {
	var m manageFlags
	cmd := &cobra.Command{
		Use:   "get VIEW [KEY]...",
		Short: "Get the present values of a View",
		Long: `Get the present values of a View: those of its open windows, and without windows those of all messages.
A KEY is a value of the view's "by"; of several expressions it has their values with commas.`,
		Example: `  carillon view get hot-rooms
  carillon view get hot-rooms 410 411 --output json | jq '.values[].values.mean'`,
		Args:              takes(1, maxViewKeys+1, "the name of a view, and keys"),
		ValidArgsFunction: m.completeViews,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, b, end, err := m.connectAsking(cmd)
			if err != nil {
				return err
			}
			defer end()
			request := admin.ViewGetRequest{View: args[0]}
			for _, key := range args[1:] {
				request.Keys = append(request.Keys, viewing.KeyTexts(strings.Split(key, ",")))
			}
			all := struct {
				Values  []fetchedValue `json:"values"`
				Offsets []uint64       `json:"offsets"`
			}{Values: []fetchedValue{}}
			for {
				page, err := b.valuesOf(ctx, request)
				if err != nil {
					return err
				}
				all.Values, all.Offsets = append(all.Values, page.Values...), page.Offsets
				if request.After = page.Next; page.Next == "" {
					break
				}
			}
			if m.output == "json" {
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printValues(cmd.OutOrStdout(), all.Values)
		},
	}
	m.flags(cmd, "table", "json")
	return cmd
}

// valuePage is a page of present values, or why there is none.
type valuePage struct {
	Error   *admin.Error
	Values  []fetchedValue
	Offsets []uint64
	Next    string
	Trouble string
}

// valuesAgain is after how long a View is asked for again that is not served.
const valuesAgain = 100 * time.Millisecond

// valuesOf gets a page. A View that was declared a moment ago, or whose broker has just changed, is
// served a moment later, so it is asked for again within the time for an answer.
func (b *brokers) valuesOf(ctx context.Context, request admin.ViewGetRequest) (*valuePage, error) {
	for until := time.Now().Add(b.timeout); ; {
		page, err := b.valuesNow(ctx, request)
		if err != nil {
			return nil, err
		}
		if page.Error == nil || page.Error.Code != admin.NotServed || time.Now().After(until) {
			return page, asError(page.Error)
		}
		if !pause(ctx, valuesAgain) {
			return nil, b.explain("view "+request.View, ctx.Err())
		}
	}
}

// valuesNow asks for a page once. The page may have an error.
func (b *brokers) valuesNow(ctx context.Context, request admin.ViewGetRequest) (*valuePage, error) {
	page := &valuePage{}
	err := b.ask(ctx, admin.ViewGetSubject, request, page)
	return page, b.explain("view "+request.View, err)
}

// maxViewKeys is how many keys are asked for at once: a request has some KiB.
const maxViewKeys = 100

// printValues prints present values, with a column for each one's name.
func printValues(w io.Writer, all []fetchedValue) error {
	names := map[string]any{}
	for i := range all {
		for name := range all[i].Values {
			names[name] = nil
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	rows := [][]string{{"KEY", "FROM", "TO"}}
	for _, name := range columns {
		rows[0] = append(rows[0], strings.ToUpper(name))
	}
	for i := range all {
		v := &all[i]
		var keys []string
		for _, part := range v.Keys {
			keys = append(keys, valueText(part))
		}
		row := []string{orDash(strings.Join(keys, ",")), v.From, v.To}
		for _, name := range columns {
			row = append(row, valueText(v.Values[name]))
		}
		rows = append(rows, row)
	}
	return printTable(w, rows)
}

// valueText returns a value of JSON for people.
func valueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return printable(v)
	}
	return fmt.Sprint(v)
}
