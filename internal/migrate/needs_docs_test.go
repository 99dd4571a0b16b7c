package migrate

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/each"
)

var update = flag.Bool("update", false, "write the tables of needed tables and columns in docs/ again")

// The pages list the tables and columns that Up and `sexton config check --connect` require.
func TestNeedsAreDocumented(t *testing.T) {
	t.Parallel()
	// Names of tables and columns that the configuration gives are shown as its keys.
	anyUsers := Users{Table: "users.table", Key: "users.key", OnRequest: map[string]string{"on_request.set": ""}}
	anyGroups := Groups{
		Table: "groups.table", Key: "groups.key", Parent: "groups.parent", MarkedOn: "groups.marked_on", MarkedBy: "groups.marked_by",
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
	} {
		begin, end := "<!-- needs of "+part.name+" -->\n", "<!-- end of needs -->\n"
		file := "../../docs/" + part.page + ".md"
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		head, rest, begun := strings.Cut(string(page), begin)
		table, tail, ended := strings.Cut(rest, end)
		require.True(t, begun && ended, "%s has marks for the needs of %s", file, part.name)
		want := tableOfNeeds(part.component)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(head+begin+want+end+tail), 0o600))
			continue
		}
		require.Equal(t, want, table, "%s differs from the checks: go test ./internal/migrate -run TestNeedsAreDocumented -update", file)
	}
}

func named(name string) component {
	list := allComponents()
	return list[slices.IndexFunc(list, func(c component) bool { return c.name == name })]
}

// tableOfNeeds has a row for each run of columns of one type.
func tableOfNeeds(c component) string {
	var text strings.Builder
	text.WriteString("| table | columns | type | needed |\n| --- | --- | --- | --- |\n")
	row := func(table string, columns []Column, needed string) {
		names := strings.Join(each.Of(columns, func(c Column) string { return "`" + c.Name + "`" }), ", ")
		kind := ""
		if len(columns) > 0 {
			kind = cmp.Or(columns[0].Type, "any")
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", table, names, kind, needed)
	}
	for _, n := range c.needs {
		needed := "yes"
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
			said := needed
			if first.Optional {
				said = "no"
			}
			row(n.Table, n.Columns[from:to], said)
			from = to
		}
	}
	if c.queue != "" {
		said := "no: `sexton migrate up` creates the table; one of the application needs these columns"
		if len(c.columns) == 0 {
			said = "no: `sexton migrate up` creates the table; the application must not have one of that name"
		}
		row(c.queue, columns("", c.columns...), said)
	}
	return text.String()
}
