package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Result describes the work that a pass without limits would do now.
type Result struct {
	// Definitions are ordered by child, column and parent.
	Definitions []Definition `json:"definitions"`
	Totals      Totals       `json:"totals"`
}

// Definition describes one definition, its pending work and the way in which Postgres
// would do it.
type Definition struct {
	Named

	Conditions []Condition `json:"conditions"`
	Backlog                //nolint:embeddedstructfieldcheck // the order is that of the document
	// Rows counts the children of due tombstones that the action would delete or change.
	// RowsCapped reports that there are, or may be, more children: counting stopped at a
	// cap, at a timeout or at an error, which is in Findings.
	Rows       int64      `json:"rows"`
	RowsCapped bool       `json:"rows_capped"`
	Access     AccessPath `json:"plan"`
	// Findings are the problems with the definition, except missing indexes, as
	// sentences.
	Findings []string `json:"findings"`
	// MissingIndexes lists the indexes of the child first, then the indexes of the
	// foreign keys below it.
	MissingIndexes []MissingIndex `json:"missing_indexes"`
	// Then lists the definitions whose parents lose rows if this definition's children
	// are deleted.
	Then []Named `json:"then"`
}

// Named identifies a definition by its tables, columns and action.
type Named struct {
	// Child and Parent are schema.table. "public." is left out as in definitions. Column
	// lists the columns of a composite key, separated by commas.
	Child string `json:"child"`
	// ChildDatabase is the child's database, in which indexes are missing. It is empty if
	// it is the planned database.
	ChildDatabase string             `json:"child_database,omitempty"`
	Column        string             `json:"column"`
	Parent        string             `json:"parent"`
	Action        definitions.Action `json:"action"`
}

// named returns the name of a definition. home is the planned database.
func named(parent *loosefk.Parent, reference *loosefk.Reference, home string) Named {
	d := reference.Definition
	n := Named{Child: reference.Child.Label(), Column: d.ColumnList(), Parent: parent.Label(), Action: d.OnDelete}
	if reference.Database != home {
		n.ChildDatabase = reference.Database
	}
	return n
}

// Condition restricts a definition to children whose column has the value, in its text
// form.
type Condition struct {
	Column string `json:"column"`
	Value  string `json:"value"`
}

// Backlog counts the tombstones of one parent, each number up to a cap.
type Backlog struct {
	// Pending is the sum of Due and Deferred. PendingCapped reports that the cap limited
	// Due or Deferred, so that there are more tombstones.
	Pending       int64 `json:"pending"`
	PendingCapped bool  `json:"pending_capped"`
	Due           int64 `json:"due"`
	// Deferred counts tombstones that failed before. A pass would not process them now.
	Deferred int64 `json:"deferred"`
}

// AccessPath describes how a statement of the engine finds its rows.
type AccessPath struct {
	// Node is the name of the scan, as EXPLAIN prints it. It is empty if there is no
	// plan.
	Node string `json:"node"`
	// Index is the index of the scan, in the table's schema. It is empty if the scan
	// reads the table.
	Index string `json:"index"`
	// UsesIndex reports that the index leads directly to the rows. A scan of an index
	// that does not begin with the column reads the whole index.
	UsesIndex bool `json:"uses_index"`
	// Table is the explained table: the child, or its largest partition. Pages is the
	// size of the explained table in blocks of the server.
	Table string `json:"table"`
	Pages int64  `json:"pages"`
}

// MissingIndex is an index without which deletions read a whole table.
type MissingIndex struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	// Why describes the existing indexes that cannot be used and, for a table below the
	// child, the foreign keys that lead to the table.
	Why string `json:"why"`
	// Create is one statement or, for a partitioned table, one per line. psql can run it
	// outside a transaction.
	Create string `json:"create"`
}

// Totals sums up the definitions. A tombstone of several definitions counts once, and so
// does an index that several definitions lack.
type Totals struct {
	Definitions    int   `json:"definitions"`
	Backlog              //nolint:embeddedstructfieldcheck // the order is that of the document
	DeleteRows     int64 `json:"delete_rows"`
	UpdateRows     int64 `json:"update_rows"`
	RowsCapped     bool  `json:"rows_capped"`
	MissingIndexes int   `json:"missing_indexes"`
	Findings       int   `json:"findings"`
}

// Limits limits what a dry run reads.
type Limits struct {
	// Tombstones caps the counts of each parent, and the number of due tombstones whose
	// children are counted.
	Tombstones int
	// Rows caps the count of each definition.
	Rows int
	// StatementTimeout limits each statement, and the counting for one definition. It
	// must be positive.
	StatementTimeout time.Duration
}

// Site describes one configured database to Plan and MissingIndexes.
type Site struct {
	Name string
	// DB is nil if the database cannot be reached.
	DB    pgcatalog.Beginner
	Names pgcatalog.Names
	// Parents are the parents in this database.
	Parents []*loosefk.Parent
}

// Plan returns the work that passes over the databases would do now, by the name of the
// database. It leaves out databases that cannot be reached. It only uses short READ ONLY
// transactions.
//
// An error on a single table, such as a missing privilege or a timeout, is a finding of
// its definition. So is an error of another database with children. Plan returns an error
// of a parent's own database.
func Plan(ctx context.Context, sites []Site, limits Limits) (map[string]*Result, error) {
	planners := map[string]*planner{}
	for _, site := range sites {
		if site.DB == nil {
			continue
		}
		s, err := readSurvey(ctx, site, sites, limits.StatementTimeout)
		if err != nil {
			return nil, fmt.Errorf("plan for database %s: %w", site.Name, err)
		}
		planners[site.Name] = &planner{db: site.DB, names: site.Names, limits: limits, survey: s, parents: site.Parents}
	}
	runs := map[string]*Result{}
	for _, site := range sites {
		if planners[site.Name] == nil {
			continue
		}
		run, err := planners[site.Name].plan(ctx, site.Name, planners)
		if err != nil {
			return nil, fmt.Errorf("plan for database %s: %w", site.Name, err)
		}
		runs[site.Name] = run
	}
	return runs, nil
}

// planner plans for one database.
type planner struct {
	db      pgcatalog.Beginner
	names   pgcatalog.Names
	limits  Limits
	survey  survey
	parents []*loosefk.Parent
}

// plan returns the plan for the parents in the database called name. planners are by
// database name. Each counts the children in its database.
func (p *planner) plan(ctx context.Context, name string, planners map[string]*planner) (*Result, error) {
	run := &Result{Definitions: []Definition{}}
	for _, parent := range p.parents {
		backlog, err := p.backlog(ctx, parent)
		if err != nil {
			return nil, fmt.Errorf("count tombstones of %s: %w", parent.Recorded, err)
		}
		run.Totals.Pending += backlog.Pending
		run.Totals.Due += backlog.Due
		run.Totals.Deferred += backlog.Deferred
		run.Totals.PendingCapped = run.Totals.PendingCapped || backlog.PendingCapped
		for _, reference := range parent.References {
			planned := newPlanned(parent, reference, backlog)
			if err := planned.fill(ctx, name, planners[reference.Database], parent, reference, backlog); err != nil {
				return nil, fmt.Errorf("plan definition %s: %w", reference.Definition.Key, err)
			}
			run.Definitions = append(run.Definitions, planned)
		}
	}
	slices.SortStableFunc(run.Definitions, func(a, b Definition) int {
		return cmp.Or(cmp.Compare(a.Child, b.Child), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Parent, b.Parent))
	})
	run.sum()
	return run, nil
}

func newPlanned(parent *loosefk.Parent, reference *loosefk.Reference, pending pendingKeys) Definition {
	return Definition{
		Named: named(parent, reference, parent.Database), Backlog: pending.Backlog,
		Conditions: render.Each(reference.Definition.Conditions,
			func(c definitions.Condition) Condition { return Condition{c.Column, string(c.Value)} }),
		Findings: []string{}, MissingIndexes: []MissingIndex{}, Then: []Named{},
	}
}

// fill adds the results from the children's database, if it can be reached. home is the
// name of the parent's database.
func (d *Definition) fill(
	ctx context.Context, home string, children *planner, parent *loosefk.Parent, reference *loosefk.Reference,
	pending pendingKeys,
) error {
	unknown := func(why string) {
		d.RowsCapped = d.RowsCapped || pending.Due > 0
		d.Findings = append(d.Findings, why)
	}
	switch {
	case reference.Broken != "":
		unknown("tombstones of " + parent.Label() + " are held, because the definition does not match the database: " + reference.Broken)
	case reference.Unreachable || children == nil:
		unknown(fmt.Sprintf("database %s cannot be reached", reference.Database))
	default:
		err := children.definition(ctx, home, parent, reference, pending, d)
		if err == nil || !reference.Remote || ctx.Err() != nil {
			return err
		}
		unknown(fmt.Sprintf("database %s: %s", reference.Database, batch.ShortError(err)))
	}
	return nil
}

func (p *planner) definition(
	ctx context.Context, home string, parent *loosefk.Parent, reference *loosefk.Reference, pending pendingKeys,
	planned *Definition,
) error {
	if err := p.countRows(ctx, parent, reference, pending, planned); err != nil {
		return err
	}
	proven, err := p.findAccess(ctx, parent, reference, planned)
	if err != nil {
		return err
	}
	if noIndexReason := reference.NoIndexReason(); noIndexReason != "" {
		planned.Findings = append(planned.Findings, noIndexReason)
	}
	return p.readOnly(ctx, pgcatalog.Pinned(), func(tx pgx.Tx) error {
		missing, deletedFrom, err := p.survey.lacking(ctx, tx, reference, proven)
		planned.MissingIndexes, planned.Then = missing, p.followOns(home, deletedFrom)
		return err
	})
}

// followOns returns the definitions whose parents are among the tables in deletedFrom.
// home is the name of the parent's database.
func (p *planner) followOns(home string, deletedFrom []*pgcatalog.Relation) []Named {
	found := []Named{}
	for _, parent := range p.parents {
		table := p.survey.Relations[parent.OID]
		if table == nil || !slices.ContainsFunc(deletedFrom,
			func(t *pgcatalog.Relation) bool { return related(t, table) }) {
			continue
		}
		for _, reference := range parent.References {
			found = append(found, named(parent, reference, home))
		}
	}
	return found
}

// sum sets the totals that depend on the definitions.
func (run *Result) sum() {
	run.Totals.Definitions = len(run.Definitions)
	creates := map[string]bool{}
	for _, d := range run.Definitions {
		if d.Action == definitions.Delete {
			run.Totals.DeleteRows += d.Rows
		} else {
			run.Totals.UpdateRows += d.Rows
		}
		run.Totals.RowsCapped = run.Totals.RowsCapped || d.RowsCapped
		run.Totals.Findings += len(d.Findings)
		for _, missing := range d.MissingIndexes {
			creates[d.ChildDatabase+"\x00"+missing.Create] = true
		}
	}
	run.Totals.MissingIndexes = len(creates)
}
