package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/drain/dml"
	"sexton/internal/groupschedule"
	"sexton/internal/installation"
	"sexton/internal/operator"
	riverjobs "sexton/river_jobs"
)

func groupCommand(env *cli.Env) *cobra.Command {
	return cli.Group("group", "Delete groups after a waiting period, or restore them",
		"  sexton group schedule 4711 --by 1\n  sexton group list",
		groupScheduleCommand(env), groupCancelCommand(env), groupDeleteCommand(env), groupListCommand(env))
}

// groupRequest holds the ID of a group, and the ID of the user who requests the change.
type groupRequest struct{ ID, By string }

// groupFunction describes an SQL function that changes the state of a group.
type groupFunction struct {
	// call is the SQL statement. It returns true if the function changed the group.
	call string
	// changed and unchanged are the messages for the results true and false.
	changed, unchanged string
}

// changedGroup is the output of `sexton group schedule`, `cancel` and `delete` with
// --json.
type changedGroup struct {
	GroupID dml.ID `json:"group_id"`
	// Changed is false if the group was already in the requested state.
	Changed bool `json:"changed"`
	// Group is null if the group is not scheduled for deletion.
	Group *groupschedule.Group `json:"group"`
}

func groupScheduleCommand(env *cli.Env) *cobra.Command {
	return groupFunctionCommand(env, &cobra.Command{
		Use:   "schedule ID",
		Short: "Schedule a group for deletion after the waiting period",
		Long: `Calls sexton.schedule_group_deletion, which marks the group with today's date and renames it, so
that its name and path are free. After the period, the job adjourned_group_deletion destroys the
group if the user may still remove it then, and restores it otherwise.`,
		Example: "  sexton group schedule 4711 --by 1",
	}, groupFunction{`SELECT "sexton".schedule_group_deletion($1, $2)`, "scheduled for deletion", "is already scheduled for deletion"})
}

func groupCancelCommand(env *cli.Env) *cobra.Command {
	return groupFunctionCommand(env, &cobra.Command{
		Use:   "cancel ID",
		Short: "Restore a group that is scheduled for deletion",
		Long: `Calls sexton.cancel_group_deletion, which removes the mark and the schedule, and restores the
group's name and path. If another group has taken the path, five random characters are added. A
destruction in progress is stopped if it has not removed a row. Otherwise, or if an ancestor of the
group is being destroyed, the command is refused.`,
		Example: "  sexton group cancel 4711 --by 1",
	}, groupFunction{
		`SELECT "sexton".cancel_group_deletion($1, $2)`, "restored",
		"is not scheduled for deletion, so there is nothing to cancel",
	})
}

// groupFunctionCommand makes cmd call a function for one group.
func groupFunctionCommand(env *cli.Env, cmd *cobra.Command, function groupFunction) *cobra.Command {
	var request groupRequest
	call := func(ctx context.Context, all *installation.Connections) error {
		return request.call(ctx, env, all, function)
	}
	env.DatabaseCommand(riverjobs.AdjournedGroupDeletion, cmd, call)
	request.flags(env, cmd, nil)
	return cmd
}

func groupDeleteCommand(env *cli.Env) *cobra.Command {
	var request groupRequest
	var now, plan bool
	cmd := env.DatabaseCommand(riverjobs.AdjournedGroupDeletion, &cobra.Command{
		Use:   "delete ID --now|--plan",
		Short: "Destroy a group without waiting, or count what would be destroyed",
		Long: `Calls sexton.delete_group_now, which marks the group if necessary, backdates the mark by the
period, and starts the destruction. "sexton group cancel" can restore the group until the first
row is removed.

--plan changes nothing. It counts the rows below the group per table, reports what prevents the
destruction, and estimates its duration. It does not need --by.`,
		Example: "  sexton group delete 4711 --now --by 1\n  sexton group delete --plan 4711",
	}, func(ctx context.Context, all *installation.Connections) error {
		if plan {
			foreseen, err := operator.ForeseeGroup(ctx, all, request.ID, request.By)
			return printForeseen(env, foreseen, err)
		}
		return request.call(ctx, env, all, groupFunction{
			`SELECT "sexton".delete_group_now($1, $2)`, "due for deletion now",
			"is already due",
		})
	})
	request.flags(env, cmd, &plan)
	cmd.Flags().BoolVar(&now, "now", false, "do not wait for the period")
	cmd.Flags().BoolVar(&plan, "plan", false, "only count rows and report what prevents the destruction")
	cli.CheckFlags(cmd, func() error {
		if now == plan {
			return errors.New("sexton group delete needs either --now or --plan; sexton group schedule waits for the group's period")
		}
		return nil
	})
	return cmd
}

// call calls the function and prints the state of the group.
func (r groupRequest) call(ctx context.Context, env *cli.Env, all *installation.Connections,
	function groupFunction,
) error {
	text := function.unchanged
	id, changed, err := callByKey(ctx, all, "change group "+r.ID, function.call, r.ID, r.By)
	if err != nil {
		return err
	}
	document := changedGroup{GroupID: id, Changed: changed}
	if document.Group, err = groupschedule.ReadGroup(ctx, all.Jobs().Pool, all.Jobs().Names, r.ID); err != nil {
		return err
	}
	if changed {
		text = function.changed
	}
	switch {
	case document.Group == nil:
	case document.Group.DueOn == nil:
		text += ", as " + document.Group.Path + "; no period is set, so it never falls due"
	case document.Group.State == "adjourned":
		text += ", as " + document.Group.Path + ", due on " + *document.Group.DueOn + " (UTC)"
	default:
		text += ", as " + document.Group.Path
	}
	return env.PrintText(document, "group %s: %s\n", r.ID, text)
}

// groupsDocument is the output of `sexton group list --json`.
type groupsDocument struct {
	groupschedule.Backlog

	Groups []groupschedule.Group `json:"groups"`
}

func groupListCommand(env *cli.Env) *cobra.Command {
	var limit *int
	cmd := env.DatabaseCommand(riverjobs.AdjournedGroupDeletion, &cobra.Command{
		Use:   "list",
		Short: "List the groups that will be deleted, with their state",
		Long: `Lists groups that are being destroyed, then the others in the order in which they fall due. Dates
are in UTC. A group is adjourned (before the end of its period), due, deferred (after an error),
enqueued, destroying, stuck (failed 5 times or more) or unscheduled: marked without a schedule, and
never destroyed.`,
		Example: "  sexton group list\n  sexton group list --json | jq '.groups[] | select(.state == \"stuck\")'",
	}, func(ctx context.Context, all *installation.Connections) (err error) {
		db, document := all.Jobs(), groupsDocument{}
		if document.Backlog, err = groupschedule.ReadBacklog(ctx, db.Pool, db.Names); err != nil {
			return err
		}
		if document.Groups, err = groupschedule.ReadGroups(ctx, db.Pool, db.Names, *limit); err != nil {
			return err
		}
		return env.Print(document, func(w io.Writer) {
			components.PrintGroups(w, "no group is scheduled for deletion",
				document.Groups)
		})
	})
	limit = cli.Limit(cmd, "list at most `N` groups")
	return cmd
}

// flags makes cmd accept the ID of a group and the flag --by. --by is required, unless
// plan points to true.
func (r *groupRequest) flags(env *cli.Env, cmd *cobra.Command, plan *bool) {
	cmd.Flags().StringVar(&r.By, "by", "", "`ID` of the user who requests it")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		var group, user int64
		c, err := env.LoadConfig()
		if err != nil || c.AdjournedGroups.Groups.Table == "" || len(args) != 1 {
			if err := cli.OneID(&group, "group")(cmd, args); err != nil {
				return err
			}
			if user, _ = strconv.ParseInt(r.By, 10, 64); user < 1 {
				r.By = ""
			}
		}
		r.ID = args[0]
		if r.By == "" && (plan == nil || !*plan || cmd.Flags().Changed("by")) {
			return fmt.Errorf("%s needs --by, the ID of the user who requests it", cmd.CommandPath())
		}
		return nil
	}
}
