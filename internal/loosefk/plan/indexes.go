package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// usable reports whether the table or leaf has an index that leads directly to the rows,
// for all values of the columns.
func (n need) usable(table uint32) bool {
	if n.indexed != nil {
		return n.indexed[table] || n.proven[table]
	}
	return slices.ContainsFunc(n.table.Indexes[table], func(i pgcatalog.Index) bool {
		return n.fits(i) && i.Valid &&
			n.complete(i)
	})
}

// partial reports whether a leaf has a partial index that could be used for rows that
// meet its predicate. Only Postgres can decide whether the statement's rows do.
func (n need) partial(table uint32) bool {
	return slices.ContainsFunc(n.table.Indexes[table], func(i pgcatalog.Index) bool {
		return n.fits(i) && i.Valid &&
			!n.complete(i)
	})
}

// leads reports whether the index of that name leads directly to the rows.
func (n need) leads(table uint32, name string) bool {
	return slices.ContainsFunc(n.table.Indexes[table], func(i pgcatalog.Index) bool {
		return i.Name == name &&
			n.fits(i)
	})
}

// fits reports whether the index begins with the columns, in any order. The given columns
// may be before or between them. A unique index on some of these columns is sufficient
// too: the other columns then only filter one row. An index column with another collation
// than the table's column cannot be used.
func (n need) fits(i pgcatalog.Index) bool {
	columns := slices.Clone(i.Columns)
	for at, name := range columns {
		if rule := i.Collations[at].Name; rule != "" && rule != n.table.Columns[name].Collation.Name {
			columns[at] = ""
		}
	}
	switch i.Method {
	case "btree":
		return pgcatalog.LeadsTo(columns, n.columns, n.given, i.Unique)
	case "hash":
		return !n.list && slices.Equal(columns, n.columns)
	}
	return false
}

// complete reports whether the index has all rows that an equality can find: all rows, or
// all but those with NULL in a compared column. Whether rows meet other predicates is not
// known when the statement is planned.
func (n need) complete(i pgcatalog.Index) bool {
	return i.Predicate == "" || pgcatalog.ExcludesNullsOf(i.Predicate, slices.Concat(n.columns, n.given))
}

// MissingIndexes lists the indexes without which cleanups in a database read whole
// tables. These are indexes of children, and indexes of native foreign keys to children
// whose rows are deleted. Each index is listed with the first definition that needs it.
// sites must contain all databases with parents.
func MissingIndexes(ctx context.Context, site Site, sites []Site, timeout time.Duration) (problem.List, error) {
	s, err := readSurvey(ctx, site, sites, timeout)
	if err != nil {
		return nil, fmt.Errorf("find missing indexes: %w", err)
	}
	var found problem.List
	err = readOnly(ctx, site.DB, timeout, pgcatalog.Pinned(), func(tx pgx.Tx) error {
		for _, home := range sites {
			for _, reference := range loosefk.UsableIn(site.Name, home.Parents) {
				d := reference.Definition
				missing, _, err := s.lacking(ctx, tx, reference, nil)
				if err != nil {
					return err
				}
				for _, index := range missing {
					if slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Fix == index.Create }) {
						continue
					}
					found.Add(problem.Problem{
						Severity: problem.Warning, Position: d.At("column"), Key: d.Key + ".column", Message: index.Why,
						Fix: index.Create,
					})
				}
			}
		}
		return nil
	})
	return found, problem.Doing(err, "find missing indexes")
}

// lacking returns the indexes that a definition lacks, its own first, and the tables
// whose rows it deletes.
func (s survey) lacking(
	ctx context.Context, tx pgx.Tx, reference *loosefk.Reference, proven map[uint32]bool,
) (missing []MissingIndex, deletedFrom []*pgcatalog.Relation, _ error) {
	var needs, below []need
	own := s.childNeed(reference, proven)
	if reference.NoIndexReason() == "" {
		needs = []need{own}
	}
	if reference.Definition.OnDelete == definitions.Delete {
		below, deletedFrom = s.below(own.table)
	}
	missing = []MissingIndex{}
	for _, n := range append(needs, below...) {
		index, err := n.missing(ctx, tx)
		if err != nil {
			return nil, nil, err
		}
		if index != nil {
			missing = append(missing, *index)
		}
	}
	return missing, deletedFrom, nil
}

// missing returns a description of the needed index, or nil if the index exists.
func (n need) missing(ctx context.Context, tx pgx.Tx) (*MissingIndex, error) {
	if n.table == nil {
		return nil, nil //nolint:nilnil // The table was dropped.
	}
	lacking := slices.DeleteFunc(slices.Clone(n.table.Leaves),
		func(leaf pgcatalog.Table) bool { return n.usable(leaf.OID) })
	if len(n.table.Leaves) == 0 && !n.usable(n.table.OID) {
		// The partitioned table has no partitions. A new partition would have no index.
		lacking = []pgcatalog.Table{n.table.Table}
	}
	if len(lacking) == 0 {
		return nil, nil //nolint:nilnil // There is an index.
	}
	why, err := n.why(ctx, tx, lacking)
	if err != nil {
		return nil, err
	}
	return &MissingIndex{Table: n.table.Label(), Columns: n.columns, Why: why, Create: n.create(lacking)}, nil
}

// create returns the statements that create the index on tables that lack it, one per
// line. If all partitions lack it, the last line creates the index of the partitioned
// table, to which Postgres attaches the indexes of the partitions.
func (n need) create(lacking []pgcatalog.Table) string {
	var lines []string
	whole := n.table.Kind == "p" && len(lacking) >= len(n.table.Leaves)
	for _, table := range lacking {
		if table.OID == n.table.OID && whole {
			continue // CONCURRENTLY is not supported for a partitioned table.
		}
		line := n.table.CreateIndex(table, n.columns...)
		whole = whole && strings.HasPrefix(line, "CREATE") // A rebuilt index may have other columns.
		lines = append(lines, line+";")
	}
	if whole {
		lines = append(lines, fmt.Sprintf("CREATE INDEX ON %s (%s);", n.table.SQL(), pgcatalog.QuoteAll(n.columns)))
	}
	return strings.Join(lines, "\n")
}

// why returns the reason for which the index is needed, as a phrase: the statement that
// reads the whole table, the foreign keys that lead to the table, and its unusable
// indexes.
func (n need) why(ctx context.Context, tx pgx.Tx, lacking []pgcatalog.Table) (string, error) {
	of, all := "", n.table.Label()
	if lacking[0] != n.table.Table {
		of, all = " of "+labels(lacking), "them"
	}
	why := fmt.Sprintf("no index%s begins with %s, so %s reads all of %s", of, strings.Join(n.columns, ", "), n.reader,
		all)
	if n.path != "" {
		why = n.path + ": " + why
	}
	for _, t := range lacking {
		for _, i := range n.table.Indexes[t.OID] {
			switch {
			case !n.fits(i):
			case !i.Valid:
				why += fmt.Sprintf("; %s is invalid: it is being built, or building it failed", i.Name)
			default:
				predicate := i.Predicate
				// Unlocked limits the wait for the table lock that pg_get_expr takes.
				err := pgcatalog.Unlocked(ctx, tx, func(nested pgx.Tx) error {
					const sql = `SELECT pg_catalog.pg_get_expr(index.indpred, index.indrelid) FROM pg_catalog.pg_index AS index
						WHERE index.indexrelid = pg_catalog.to_regclass($1)`
					rows, _ := nested.Query(ctx, sql, i.Printed)
					_, err := pgx.ForEachRow(rows, []any{&predicate}, func() error { return nil })
					return err
				})
				if err != nil {
					return "", err
				}
				why += fmt.Sprintf("; %s is partial: its predicate %s is not known to hold when the statement is planned", i.Name, predicate)
			}
		}
	}
	return why, nil
}

// labels returns the names of the first three tables and the number of further tables.
func labels(tables []pgcatalog.Table) string {
	const most = 3
	names := render.Each(tables[:min(len(tables), most)], pgcatalog.Table.Label)
	text := strings.Join(names, ", ")
	if more := len(tables) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
