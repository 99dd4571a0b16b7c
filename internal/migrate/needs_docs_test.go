package migrate

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/render"
)

var update = flag.Bool("update", false, "write the lists of needed tables and columns in docs/")

// The lists of tables and columns in docs/ are the needs that Up and `sexton config check
// --connect` check.
func TestNeedsAreDocumented(t *testing.T) {
	t.Parallel()
	// The documents show configured names of tables and columns as the keys of the
	// configuration.
	anyUsers := Users{Table: "users.table", Key: "users.key", OnRequest: map[string]string{"on_request.set": ""}}
	anyGroups := Groups{
		Table: "groups.table", Key: "groups.key", Parent: "groups.parent", MarkedOn: "groups.marked_on",
		MarkedBy:     "groups.marked_by",
		PeriodColumn: "period_column", Rename: []string{"rename"},
	}
	for _, part := range []struct {
		page, name string
		component  component
	}{
		{"loose-foreign-keys", LooseForeignKeys, named(LooseForeignKeys)},
		{"users", GhostUsers, named(GhostUsers)},
		{"users", GhostUsers + ".users", anyUsers.fit(named(GhostUsers))},
		{"placeholder-users", PlaceholderUsers, named(PlaceholderUsers)},
		{"groups", AdjournedGroups, named(AdjournedGroups)},
		{"groups", AdjournedGroups + ".groups", anyGroups.fit(named(AdjournedGroups))},
		{"external-diffs", ExternalDiffs, named(ExternalDiffs)},
		{"retention", "retention", component{needs: []Need{{Table: "rules.table", Columns: []Column{
			{Name: "rules.column", Type: Time},
			{Name: "rules.conditions.column", Optional: true},
		}}}}},
	} {
		begin, end := "<!-- needs of "+part.name+" -->\n", "<!-- end of needs -->\n"
		file := "../../docs/" + part.page + ".md"
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		head, rest, begun := strings.Cut(string(page), begin)
		list, tail, ended := strings.Cut(rest, end)
		require.True(t, begun && ended, "%s has marks for the needs of %s", file, part.name)
		want := listOfNeeds(part.component)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(head+begin+want+end+tail), 0o600))
			continue
		}
		require.Equal(t, want, list,
			"%s differs from the checks: go test ./internal/migrate -run TestNeedsAreDocumented -update", file)
	}
}

func named(name string) component {
	all := allComponents()
	return all[slices.IndexFunc(all, func(c component) bool { return c.name == name })]
}

// listOfNeeds returns a Markdown list of a component's needs, with one item for
// consecutive columns of one type.
func listOfNeeds(c component) string {
	var text strings.Builder
	item := func(table string, columns []Column, note string) {
		words := []string{"- `" + table + "`"}
		if len(columns) > 0 {
			words[0] += ": " + strings.Join(render.Each(columns, func(c Column) string { return "`" + c.Name + "`" }), ", ")
			if columns[0].Type != "" {
				words[0] += " (" + columns[0].Type + ")"
			}
		}
		if note != "" {
			words = append(words, note)
		}
		text.WriteString(strings.Join(words, "; ") + "\n")
	}
	for _, n := range c.needs {
		needed := ""
		if len(n.With) == 1 {
			needed = "if the table exists"
		} else if len(n.With) > 1 {
			needed = "if the tables `" + strings.Join(n.With, "` and `") + "` exist"
		}
		for from := 0; from < len(n.Columns); {
			first, to := n.Columns[from], from
			for to < len(n.Columns) && n.Columns[to].Type == first.Type && n.Columns[to].Optional == first.Optional {
				to++
			}
			note := needed
			if first.Optional {
				note = "optional"
			}
			item(n.Table, n.Columns[from:to], note)
			from = to
		}
	}
	if c.queue != "" {
		note := "created by `sexton migrate up`; if the application has its own, it needs these columns"
		if len(c.columns) == 0 {
			note = "created by `sexton migrate up`; the application must not have a table of that name"
		}
		item(c.queue, columns("", c.columns...), note)
	}
	return text.String()
}
