package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// engineSettings are planner settings with which a plan shows the index that can be used
// for a statement. Without them Postgres would scan a small table.
const engineSettings = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; " +
	"SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"

// fewPages is the number of pages up to which a scan of the whole table is not a finding.
const fewPages = 8

// findAccess explains the definition's statement on the child or, if the child is
// partitioned, on its largest partition. It also returns the partitions in which Postgres
// uses a partial index, which only EXPLAIN shows.
func (p *planner) findAccess(ctx context.Context, parent *loosefk.Parent, reference *loosefk.Reference,
	planned *Definition,
) (map[uint32]bool, error) {
	own, proven := p.survey.childNeed(reference, nil), map[uint32]bool{}
	if own.table == nil || len(reference.Leaves) == 0 {
		// If the child was dropped or has no partitions, there is no statement to
		// explain.
		return proven, nil
	}
	largest, err := p.largestLeaf(ctx, reference)
	if err != nil {
		return nil, err
	}
	for _, leaf := range reference.Leaves {
		if leaf.OID != largest && (own.usable(leaf.OID) || !own.partial(leaf.OID)) {
			continue
		}
		found, err := p.explain(ctx, parent, reference, leaf)
		if err != nil {
			if err := planned.note(ctx, "no query plan of "+leaf.Label(), err); err != nil {
				return nil, err
			}
			if leaf.OID == largest {
				planned.Access = AccessPath{Table: leaf.Label()}
			}
			continue
		}
		leads := own.leads(leaf.OID, found.index)
		proven[leaf.OID] = leads
		if leaf.OID == largest {
			planned.Access = AccessPath{
				Node: found.node, Index: found.index, UsesIndex: leads, Table: leaf.Label(),
				Pages: found.pages,
			}
		}
	}
	if access := planned.Access; access.Node != "" && !access.UsesIndex && access.Pages > fewPages {
		read := fmt.Sprintf("reads all %d pages of %s", access.Pages, access.Table)
		// Since Postgres 18 an index scan may skip to each value of the preceding
		// columns.
		if access.Index != "" {
			read = fmt.Sprintf("reads all values of the first column of index %s", access.Index)
		}
		planned.Findings = append(planned.Findings, "every statement "+read)
	}
	return proven, nil
}

// largestLeaf returns the leaf with the most pages at the last VACUUM or ANALYZE. A query
// for the current sizes would wait for locks.
func (p *planner) largestLeaf(ctx context.Context, reference *loosefk.Reference) (oid uint32, err error) {
	oids := render.Each(reference.Leaves, func(leaf pgcatalog.Table) uint32 { return leaf.OID })
	const sql = `SELECT leaf.oid FROM pg_catalog.unnest($1::pg_catalog.oid[]) WITH ORDINALITY AS leaf (oid, position)
		LEFT JOIN pg_catalog.pg_class AS class ON class.oid = leaf.oid ORDER BY coalesce(class.relpages, -1) DESC, leaf.position LIMIT 1`
	err = p.readOnly(ctx, "", func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, oids).Scan(&oid) })
	return oid, err
}

const pagesSQL = `SELECT coalesce(pg_catalog.pg_relation_size($1::pg_catalog.oid) / pg_catalog.current_setting('block_size')::bigint, 0)`

// scan is the part of a plan that finds the rows, and the size of the table.
type scan struct {
	node, index string
	pages       int64
}

// explain returns the scan of the generic plan. The generic plan does not depend on
// values, as in the engine. With values, Postgres could use partial indexes that the
// engine's statements cannot use.
func (p *planner) explain(ctx context.Context, parent *loosefk.Parent, reference *loosefk.Reference,
	leaf pgcatalog.Table,
) (scan, error) {
	sql, args := reference.Direct(p.names, leaf, dml.Keys{Of: &parent.Key}, false)
	values := strings.Join(slices.Repeat([]string{"NULL"}, len(args)), ", ")
	var plan []byte
	var pages int64
	err := p.readOnly(ctx, engineSettings, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "PREPARE sexton_plan AS "+sql); err != nil {
			return err
		}
		// The prepared statement outlives the transaction and must be deallocated after
		// an error too, hence the savepoint.
		err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			return nested.QueryRow(ctx, "EXPLAIN (FORMAT JSON) EXECUTE sexton_plan ("+values+")",
				pgx.QueryExecModeExec).Scan(&plan)
		})
		if _, deallocateErr := tx.Exec(ctx, "DEALLOCATE sexton_plan"); err == nil {
			err = deallocateErr
		}
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, pagesSQL, leaf.OID).Scan(&pages)
	})
	if err != nil {
		return scan{}, err
	}
	var decoded [1]struct {
		Plan planNode `json:"Plan"`
	}
	if err := json.Unmarshal(plan, &decoded); err != nil {
		return scan{}, fmt.Errorf("decode plan: %w", err)
	}
	found := decoded[0].Plan.scan(leaf.Name)
	found.pages = pages
	return found, nil
}

type planNode struct {
	NodeType  string     `json:"Node Type"`
	IndexName string     `json:"Index Name"`
	Relation  string     `json:"Relation Name"`
	Plans     []planNode `json:"Plans"`
}

// scan returns the first scan of a table in the order of the plan. It skips Tid Scans,
// which read rows that another scan has found. The name of a bitmap scan's index is in
// the node below the scan.
func (n planNode) scan(table string) scan {
	if strings.HasSuffix(n.NodeType, "Scan") && n.NodeType != "Tid Scan" && n.Relation == table {
		return scan{node: n.NodeType, index: n.firstIndex()}
	}
	for _, child := range n.Plans {
		if found := child.scan(table); found.node != "" {
			return found
		}
	}
	return scan{}
}

func (n planNode) firstIndex() string {
	if n.IndexName != "" {
		return n.IndexName
	}
	for _, child := range n.Plans {
		if name := child.firstIndex(); name != "" {
			return name
		}
	}
	return ""
}
