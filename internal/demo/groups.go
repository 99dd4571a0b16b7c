package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	groupDestroyKind    = "group_destroy"
	adjournedGroupsKind = "adjourned_group_deletion"
	// fewestTrees is how many whole trees there have to be; with fewer, groups with projects and without sub-groups are taken.
	fewestTrees = 4
	// restoredEvery is the group, in the order of their marks, that is restored in time.
	restoredEvery = 3
	// restoredAfter is how many further groups are marked before that.
	restoredAfter = 2
)

// groups has the deletion of groups scheduled, with all that is below them, as an administrator. For most of them the
// period is over, as if they had been marked weeks ago, and their trees are taken down; the others are restored in time.
type groups struct {
	stage

	// share of the trees is marked, in percent.
	share     int64
	initiator int64
	// since is the last event of what came before.
	since int64
	// steps are still to be done, marked are the groups that have been marked.
	steps  []groupStep
	marked []*markedGroup
}

// groupStep marks a group or, with restore, takes that back.
type groupStep struct {
	group   *markedGroup
	restore bool
}

// markedGroup is a group with what stood below it when it was marked, itself included.
type markedGroup struct {
	id               int64
	restored         bool
	path             string
	groups, projects []int64
}

func newGroups(on stage) *groups {
	g := &groups{stage: on}
	g.share = g.Script().pace(on.endless).Share
	return g
}

// Script tells of groups: due groups wait, until nothing is left of them. Marks of this demo are as old as the
// row's last change; those in the sample data no older than the server.
func (*groups) Script() Script {
	return Script{
		Kind: groupDestroyKind, With: []string{adjournedGroupsKind}, Title: "groups",
		Acted: "marks and restores", Unit: "groups", Finished: "destroyed", Until: "from due to destroyed",
		Pace:        Pace{Share: 30, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 60, Length: 10 * time.Minute, Slowest: 0.05},
		Waiting: `SELECT 'groups', schedule.group_id, greatest(due.updated_at, pg_postmaster_start_time())
			FROM "public".group_deletion_schedules AS schedule JOIN "public".groups AS due ON due.id = schedule.group_id
			WHERE due.marked_for_deletion_on < (SELECT "sexton".group_deletion_cutoff())`,
		Processed: "groups", Numbers: []string{"projects", "groups_enqueued", "groups_restored"},
		Rows: []RowCount{{"deleted", "deleted"}, {"nullified", "nullified"}},
	}
}

// belowGroup finds the groups of a tree: $1 itself and those below it.
const belowGroup = `
WITH RECURSIVE below AS (
	SELECT top.id FROM "public".groups AS top WHERE top.id = $1
	UNION ALL
	SELECT child.id FROM below JOIN "public".groups AS child ON child.parent_id = below.id
)`

// Plan picks trees in which nothing is marked, and what is to become of each.
func (g *groups) Plan(ctx context.Context) (int64, error) {
	const beginning = `SELECT
		(SELECT coalesce(min(admin.id), 0) FROM "public".users AS admin WHERE admin.admin AND admin.user_type = 0),
		(SELECT coalesce(max(event.id), 0) FROM "sexton".events AS event)`
	if err := g.pool.QueryRow(ctx, g.names.Render(beginning)).Scan(&g.initiator, &g.since); err != nil {
		return 0, fmt.Errorf("find an administrator: %w", err)
	}
	trees, err := g.trees(ctx)
	if err != nil {
		return 0, fmt.Errorf("find groups to mark: %w", err)
	}
	if len(trees) == 0 {
		return 0, nil
	}
	// The fullest is one of the restored ones, where there are two: a small data set has most of what the other scenes
	// look at below one group.
	fullest, others := trees[0], trees[1:]
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	trees = slices.Insert(others, min(1, len(others)), fullest)
	// One that goes and one that is restored, where there are two.
	trees = trees[:min(len(trees), max(2, (len(trees)*int(g.share)+99)/100))]
	var restores []groupStep
	for i, id := range trees {
		group := &markedGroup{id: id, restored: i%restoredEvery == 1}
		g.steps = append(g.steps, groupStep{group: group})
		if group.restored {
			restores = append(restores, groupStep{group: group, restore: true})
		}
		if i%restoredEvery == (1+restoredAfter)%restoredEvery && len(restores) > 1 {
			g.steps, restores = append(g.steps, restores[0]), restores[1:]
		}
	}
	g.steps = append(g.steps, restores...)
	return int64(len(g.steps)), nil
}

// trees are the groups that may be marked, those with the most merge requests first; none stands below another.
func (g *groups) trees(ctx context.Context) ([]int64, error) {
	const whole = `
		WITH RECURSIVE tree AS (
			SELECT top.id, top.id AS root, top.marked_for_deletion_on FROM "public".groups AS top WHERE top.parent_id IS NULL
			UNION ALL
			SELECT child.id, tree.root, child.marked_for_deletion_on FROM tree JOIN "public".groups AS child ON child.parent_id = tree.id
		)
		SELECT tree.root FROM tree
		LEFT JOIN "public".projects AS project ON project.group_id = tree.id
		LEFT JOIN "public".merge_requests AS request ON request.target_project_id = project.id
		GROUP BY tree.root HAVING count(tree.marked_for_deletion_on) = 0
		ORDER BY count(request.id) DESC, tree.root`
	const single = `
		SELECT leaf.id FROM "public".groups AS leaf
		WHERE leaf.marked_for_deletion_on IS NULL AND NOT EXISTS (SELECT FROM "public".groups AS child WHERE child.parent_id = leaf.id)
		AND EXISTS (SELECT FROM "public".projects AS project WHERE project.group_id = leaf.id)
		AND NOT EXISTS (
			SELECT FROM "public".groups AS above WHERE above.id = ANY (leaf.traversal_ids) AND above.marked_for_deletion_on IS NOT NULL
		)
		ORDER BY (
			SELECT count(*) FROM "public".projects AS project JOIN "public".merge_requests AS request ON request.target_project_id = project.id
			WHERE project.group_id = leaf.id
		) DESC, leaf.id`
	var found []int64
	var err error
	for _, sql := range []string{whole, single} {
		rows, _ := g.pool.Query(ctx, g.names.Render(sql))
		if found, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(found) >= fewestTrees {
			return found, err
		}
	}
	return found, nil
}

// Act marks and restores groups. Only groups that are to go are timed.
func (g *groups) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	steps := g.steps[:min(limit, len(g.steps))]
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		for _, step := range steps {
			if err := g.take(ctx, tx, step); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	g.steps = g.steps[len(steps):]
	for _, step := range steps {
		item := Item{} // Who is restored has nothing to wait for.
		if !step.group.restored {
			item = Item{"groups", step.group.id}
		}
		if !step.restore {
			g.marked = append(g.marked, step.group)
		}
		acted = append(acted, item)
	}
	return acted, len(g.steps) > 0, nil
}

func (g *groups) take(ctx context.Context, tx pgx.Tx, step groupStep) error {
	group := step.group
	if step.restore {
		return g.ask(ctx, tx, `SELECT "sexton".cancel_group_deletion($1, $2)`, "restore", group.id)
	}
	const look = belowGroup + `
		SELECT own.path, ARRAY(SELECT below.id FROM below),
			ARRAY(SELECT project.id FROM "public".projects AS project JOIN below ON below.id = project.group_id)
		FROM "public".groups AS own WHERE own.id = $1`
	if err := tx.QueryRow(ctx, g.names.Render(look), group.id).Scan(&group.path, &group.groups, &group.projects); err != nil {
		return fmt.Errorf("look below group %d: %w", group.id, err)
	}
	if err := g.ask(ctx, tx, `SELECT "sexton".schedule_group_deletion($1, $2)`, "mark", group.id); err != nil || group.restored {
		return err
	}
	const longAgo = `
		WITH due AS (
			UPDATE "public".groups AS due SET marked_for_deletion_on = "sexton".group_deletion_cutoff() - 1, updated_at = now()
			WHERE due.id = $1 RETURNING due.id, due.marked_for_deletion_on
		)
		UPDATE "public".group_deletion_schedules AS schedule SET marked_for_deletion_on = due.marked_for_deletion_on
		FROM due WHERE schedule.group_id = due.id`
	if _, err := tx.Exec(ctx, g.names.Render(longAgo), group.id); err != nil {
		return fmt.Errorf("date back the mark of group %d: %w", group.id, err)
	}
	return nil
}

// ask goes through one of the doors.
func (g *groups) ask(ctx context.Context, tx pgx.Tx, door, verb string, id int64) error {
	var done bool
	err := tx.QueryRow(ctx, g.names.Render(door), id, g.initiator).Scan(&done)
	if err == nil && !done {
		err = errors.New("it was done before")
	}
	if err != nil {
		return fmt.Errorf("%s group %d: %w", verb, id, err)
	}
	return nil
}
