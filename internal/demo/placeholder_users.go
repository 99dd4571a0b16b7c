package demo

import (
	"context"
	"time"
)

const placeholderUsersKind = "import_placeholder_user_cleanup"

// placeholderUsers takes the group away from placeholder users of an import, as the deletion of that group does. Placeholders that
// have written nothing are deleted, by way of the ghost users' queue; the others stay.
type placeholderUsers struct {
	stage

	// left are the placeholders that it has left without an owner.
	left []int64
}

// Script tells of placeholders. One is decided about when it is queued for deletion, or when its row says what keeps it.
func (*placeholderUsers) Script() Script {
	return Script{
		Kind: placeholderUsersKind, Title: "placeholder users",
		Acted: "left by their group", Unit: "placeholders", Finished: "offered", Until: "from ownerless to decided",
		Pace:        Pace{Share: 100, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 0.2},
		Waiting:     query("waiting_placeholders"),
		Processed:   "scheduled", Numbers: []string{"final_attempts"},
	}
}

// Plan counts the placeholders with an owner, and records the authors of the notes that keep them.
func (p *placeholderUsers) Plan(ctx context.Context) (owned int64, err error) {
	if err := p.record(ctx, "record_imported"); err != nil {
		return 0, err
	}
	err = p.row(ctx, "count_owned", []any{&owned})
	return owned, err
}

// Act leaves some placeholders without an owner.
func (p *placeholderUsers) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	left, err := p.ids(ctx, "leave_placeholders", limit)
	p.left = append(p.left, left...)
	return items("placeholders", left), len(left) > 0, err
}

// Check looks for placeholders that are undecided, for kept ones without a reason, and for notes that have lost
// their author to the ghost user although they should have kept it.
func (p *placeholderUsers) Check(ctx context.Context) ([]Finding, error) {
	return p.findings(ctx, "check_placeholders", p.left)
}
