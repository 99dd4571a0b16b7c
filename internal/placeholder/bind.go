package placeholder

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// section is the configuration key of the references.
const section = "placeholder_users"

// Bind resolves the columns of the entries, like definitions of package loosefk, to
// references that forbid the deletion of users. Findings have keys such as
// placeholder_users.references[3].columns[0] and no position. If one of the findings is
// an error, the references are nil.
func Bind(ctx context.Context, db pgcatalog.Beginner, names pgcatalog.Names,
	entries []Reference,
) (*References, problem.List, error) {
	defs, problems := define(entries)
	resolved, found, err := loosefk.Resolve(ctx, []loosefk.Site{{Schema: names.Tracked, DB: db}}, defs)
	if err != nil {
		return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
	}
	bound := &References{}
	var needs []dml.Need
	for _, users := range resolved[""] {
		for i, r := range users.References {
			needs = append(needs, dml.Need{By: i, Table: r.Child.OID, Privilege: "SELECT"})
			bound.edges = append(bound.edges, edge{Edge: r.Edge, label: r.Child.In(names.Tracked) + "." + r.Columns[0]})
		}
		lacking, err := dml.Lacking(ctx, db, needs, func(by int) problem.Problem {
			return problem.Problem{Key: users.References[by].Definition.Key}
		})
		if err != nil {
			return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
		}
		found.Add(lacking...)
	}
	for _, p := range found {
		p.Key = place(p.Key)
		if !slices.Contains(problems, p) {
			problems.Add(p)
		}
	}
	if problems.Err() != nil {
		return nil, problems, nil
	}
	return bound, problems, nil
}

// define returns a definition for each column of the entries. The definitions have no
// action, which means that they forbid the deletion.
func define(entries []Reference) (defs []definitions.Definition, problems problem.List) {
	for i, entry := range entries {
		key := fmt.Sprintf("%s.references[%d]", section, i)
		child, err := definitions.ParseName(entry.Table)
		if err != nil {
			problems.Add(problem.Problem{Key: key + ".table", Message: fmt.Sprintf("table %q %v", entry.Table, err)})
			continue
		}
		for j, column := range entry.Columns {
			at := fmt.Sprintf("%s.columns[%d]", key, j)
			defs = append(defs, definitions.Definition{
				Key: at, Position: problem.Position{File: at}, Child: child, Columns: []string{column},
				Parent: definitions.Name{Table: "users"}, ParentColumns: []string{"id"},
			})
		}
	}
	return defs, problems
}

// place converts the key of a finding about a definition to the configuration key of the
// column. If the finding is not about the column, place returns the key of the entry's
// table.
func place(key string) string {
	column := strings.LastIndexByte(key, ']') + 1
	if key[column:] == "" {
		return key[:strings.LastIndex(key, ".columns[")] + ".table"
	}
	return key[:column]
}
