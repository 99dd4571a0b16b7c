package dryrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Usable reports whether the table has an index that leads straight to the rows of a need, whatever the values.
func (t *surveyTable) usable(n need) bool {
	if n.indexed != nil {
		return n.indexed[t.OID] || n.proven[t.OID]
	}
	return slices.ContainsFunc(t.indexes, func(i surveyIndex) bool {
		return i.fits(n) && i.valid && i.complete(n)
	})
}

// partial reports whether an index would be of use if its predicate were met: only Postgres can tell.
func (t *surveyTable) partial(n need) bool {
	return slices.ContainsFunc(t.indexes, func(i surveyIndex) bool { return i.fits(n) && i.valid && !i.complete(n) })
}

// leads reports whether the index of that name leads straight to the rows.
func (t *surveyTable) leads(name string, n need) bool {
	return slices.ContainsFunc(t.indexes, func(i surveyIndex) bool { return i.name == name && i.fits(n) })
}

// fits reports whether the index begins with the columns of the need, in any order, with none but given ones in
// between. A unique index on some of them serves as well: the others only filter one row.
func (i surveyIndex) fits(n need) bool {
	switch i.method {
	case "btree":
	case "hash":
		return !n.list && slices.Equal(i.columns, n.columns)
	default:
		return false
	}
	return pgcatalog.LeadsTo(i.columns, n.columns, n.given, i.unique)
}

// complete reports whether the index has all rows that an equality can find: all of them, or all but those with
// NULL in a column that is compared. What else a predicate says about a row is unknown where plans are made.
func (i surveyIndex) complete(n need) bool {
	return i.predicate == "" || pgcatalog.ExcludesNullsOf(i.predicate, slices.Concat(n.columns, n.given))
}

// MissingIndexes lists the indexes without which clean-ups in a database read whole tables: those of children first, then those of
// the foreign keys below children whose rows are deleted, each with its first definition. Sites are all that have parents.
func MissingIndexes(ctx context.Context, site Site, sites []Site, timeout time.Duration) (problem.List, error) {
	s, err := readSurvey(ctx, site, sites, timeout)
	if err != nil {
		return nil, fmt.Errorf("look for indexes: %w", err)
	}
	var found problem.List
	for _, home := range sites {
		for _, parent := range home.Parents {
			for _, reference := range parent.References {
				if reference.Database != site.Name || !reference.Usable() {
					continue
				}
				d := reference.Definition
				missing, _ := s.lacking(reference, nil)
				for _, index := range missing {
					if slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Fix == index.Create }) {
						continue
					}
					found.Add(problem.Problem{
						Severity: problem.Warning, Position: d.At("column"), Key: d.Key + ".column", Message: index.Why, Fix: index.Create,
					})
				}
			}
		}
	}
	return found, nil
}

// lacking are the indexes that a definition lacks, its own first, and the tables that lose rows by it.
func (s *survey) lacking(reference *loosefk.Reference, proven map[uint32]bool) (missing []MissingIndex, gone []uint32) {
	var needs, below []need
	if reference.Unserved() == "" {
		needs = []need{childNeed(reference, proven)}
	}
	if reference.Definition.OnDelete == definitions.Delete {
		below, gone = s.below(reference.Child)
	}
	missing = []MissingIndex{}
	for _, n := range append(needs, below...) {
		if index, found := s.missing(n); found {
			missing = append(missing, index)
		}
	}
	return missing, gone
}

// missing describes the index that a need lacks, if it does.
func (s *survey) missing(n need) (MissingIndex, bool) {
	root := s.tables[n.table]
	if root == nil {
		return MissingIndex{}, false // dropped in this moment
	}
	leaves := s.leaves(n.table)
	lacking := slices.DeleteFunc(slices.Clone(leaves), func(t *surveyTable) bool { return t.usable(n) })
	if len(leaves) == 0 && !root.usable(n) {
		lacking = []*surveyTable{root} // partitions to come would have none
	}
	if len(lacking) == 0 {
		return MissingIndex{}, false
	}
	return MissingIndex{
		Table: root.Label(), Columns: n.columns, Why: s.why(n, root, lacking), Create: s.create(n, root, lacking, len(leaves)),
	}, true
}

// why says what reads the whole table, by which way it is reached, and what stands there in place of an index.
func (s *survey) why(n need, root *surveyTable, lacking []*surveyTable) string {
	of, all := "", root.Label()
	if lacking[0] != root {
		of, all = " of "+labels(lacking), "them"
	}
	why := fmt.Sprintf("no index%s begins with %s, so %s reads all of %s", of, strings.Join(n.columns, ", "), n.reader, all)
	if n.path != "" {
		why = n.path + ": " + why
	}
	for _, t := range lacking {
		for _, i := range t.indexes {
			switch {
			case !i.fits(n):
			case !i.valid:
				why += fmt.Sprintf("; %s is invalid: it is being built, or building it failed (REINDEX INDEX CONCURRENTLY %s.%s)",
					i.name, s.quote(t.Schema), s.quote(i.name))
			default:
				why += fmt.Sprintf("; %s is partial: its predicate %s is not known to hold when the statement is planned", i.name, i.predicate)
			}
		}
	}
	return why
}

// labels lists tables, of many the first.
func labels(tables []*surveyTable) string {
	const most = 3
	names := make([]string, 0, most)
	for _, t := range tables[:min(len(tables), most)] {
		names = append(names, t.Label())
	}
	text := strings.Join(names, ", ")
	if more := len(tables) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
