package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

func (a *app) showJobs(jobs []*waterclockv1.Job) error {
	p := a.paint(a.Stdout)
	rows := make([][]string, 0, len(jobs))
	for _, j := range jobs {
		s := j.GetSpec()
		rows = append(rows, []string{
			j.GetJobId(), clean(s.GetName()), p.state(jobState(j.GetState())), clean(s.GetKind()), clean(first(s.GetQueue(), "default")),
			priorityName(s.GetPriority()), a.scheduleText(s.GetSchedule()), a.moment(j.GetNextDueTime()),
		})
	}
	return a.table([]string{"JOB", "NAME", "STATE", "KIND", "QUEUE", "PRIORITY", "SCHEDULE", "NEXT"}, rows)
}

func (a *app) showRuns(runs []*waterclockv1.Run, withJob bool) error {
	p := a.paint(a.Stdout)
	headings := []string{"RUN", "STATE", "ORIGIN", "SCHEDULED", "ATTEMPT", "RAN", "REASON"}
	rows := make([][]string, 0, len(runs))
	for _, r := range runs {
		row := []string{
			r.GetRunId(), p.state(runState(r.GetState())), word("RUN_ORIGIN_", r.GetOrigin().String()), a.moment(r.GetScheduledTime()),
			strconv.Itoa(int(r.GetAttempt())), durationText(r.GetRunTime()), reasonText(r),
		}
		if withJob {
			row = append([]string{r.GetJobId()}, row...)
		}
		rows = append(rows, row)
	}
	if withJob {
		headings = append([]string{"JOB"}, headings...)
	}
	return a.table(headings, rows)
}

// reasonText tells why a run stands where it does.
func reasonText(r *waterclockv1.Run) string {
	if r.GetOutcome() == nil {
		return clean(r.GetWaitReason())
	}
	return outcomeText(r.GetOutcome())
}

func outcomeText(o *waterclockv1.Outcome) string {
	text := o.GetReason()
	if o.GetCode() != 0 {
		text += " " + strconv.Itoa(int(o.GetCode()))
	}
	if o.GetMessage() != "" {
		text += ": " + o.GetMessage()
	}
	return clean(text)
}

func (a *app) showJob(j *waterclockv1.Job) error {
	p, s := a.paint(a.Stdout), j.GetSpec()
	pause := ""
	if j.GetPause() != nil {
		pause = strings.TrimSpace("by " + first(j.GetPause().GetBy(), "unknown") + " " + a.moment(j.GetPause().GetAt()))
		if j.GetPause().GetNote() != "" {
			pause += ": " + j.GetPause().GetNote()
		}
	}
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(s.GetLabels())) {
		labels = append(labels, k+"="+s.GetLabels()[k])
	}
	values := [][2]string{
		{"Job", j.GetJobId()}, {"Name", clean(s.GetName())}, {"Namespace", clean(j.GetNamespace())},
		{"State", p.state(jobState(j.GetState()))}, {"Paused", clean(pause)}, {"Version", strconv.FormatInt(j.GetVersion(), 10)},
		{"Kind", clean(s.GetKind())}, {"Input", inputText(s)}, {"Queue", clean(first(s.GetQueue(), "default"))}, {"Priority", priorityName(s.GetPriority())},
		{"Schedule", a.scheduleText(s.GetSchedule())}, {"Next", a.moment(j.GetNextDueTime())}, {"Retry", retryText(s.GetRetry())},
		{"Timeout", durationText(s.GetAttemptTimeout())}, {"Deadline", durationText(s.GetTotalDeadline())},
		{"Start deadline", durationText(s.GetStartDeadline())}, {"Catch-up", word("CATCH_UP_", s.GetCatchUp().String())},
		{"Overlap", word("OVERLAP_", s.GetOverlap().String())}, {"Labels", clean(strings.Join(labels, " "))},
		{"Created", a.moment(j.GetCreateTime())}, {"Updated", a.moment(j.GetUpdateTime())},
	}
	for _, w := range j.GetWarnings() {
		values = append(values, [2]string{"Warning", clean(w)})
	}
	return a.details(values)
}

func (a *app) showRun(r *waterclockv1.Run) error {
	p := a.paint(a.Stdout)
	progress := ""
	if r.GetProgress() != nil {
		progress = progressText(r)
	}
	if err := a.details([][2]string{
		{"Run", r.GetRunId()}, {"Job", r.GetJobId()}, {"State", p.state(runState(r.GetState()))}, {"Reason", reasonText(r)},
		{"Origin", word("RUN_ORIGIN_", r.GetOrigin().String())}, {"Scheduled", a.moment(r.GetScheduledTime())}, {"Civil time", clean(r.GetCivilTime())},
		{"Due", a.moment(r.GetDueTime())}, {"Started", a.moment(r.GetStartTime())}, {"Ended", a.moment(r.GetEndTime())},
		{"Ran", durationText(r.GetRunTime())}, {"Progress", progress}, {"Kind", clean(r.GetKind())}, {"Queue", clean(r.GetQueue())},
		{"Priority", priorityName(r.GetPriority())}, {"Attempt", strconv.Itoa(int(r.GetAttempt()))},
		{"Dispatch", strconv.FormatInt(r.GetDispatch(), 10)}, {"Executor", clean(r.GetExecutor())},
		{"Result", clean(string(r.GetOutcome().GetResult()))},
	}); err != nil || len(r.GetAttempts()) == 0 {
		return err
	}
	rows := make([][]string, 0, len(r.GetAttempts()))
	for _, at := range r.GetAttempts() {
		ran := ""
		if at.GetStartTime() != nil && at.GetEndTime() != nil {
			ran = short(at.GetEndTime().AsTime().Sub(at.GetStartTime().AsTime()))
		}
		rows = append(rows, []string{
			strconv.Itoa(int(at.GetAttempt())), p.state(runState(at.GetState())), a.moment(at.GetStartTime()), ran, clean(at.GetExecutor()),
			outcomeText(at.GetOutcome()),
		})
	}
	if _, err := fmt.Fprintln(a.Stdout); err != nil {
		return err
	}
	return a.table([]string{"ATTEMPT", "STATE", "STARTED", "RAN", "EXECUTOR", "REASON"}, rows)
}

func progressText(r *waterclockv1.Run) string {
	text := fmt.Sprintf("%.0f%%", r.GetProgress().GetFraction()*100)
	if m := r.GetProgress().GetMessage(); m != "" {
		text += " " + m
	}
	return clean(text)
}

func inputText(s *waterclockv1.JobSpec) string {
	const most = 200
	var text string
	switch in := s.GetInput().(type) {
	case *waterclockv1.JobSpec_Json:
		if raw, err := in.Json.MarshalJSON(); err == nil {
			text = clean(compact(raw))
		}
	case *waterclockv1.JobSpec_Payload:
		text = clean(string(in.Payload))
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "… (whole with --output json)"
	}
	return text
}

func retryText(r *waterclockv1.RetryPolicy) string {
	var parts []string
	if r.GetMaxAttempts() > 0 {
		parts = append(parts, fmt.Sprintf("%d attempts", r.GetMaxAttempts()))
	}
	if r.GetInitialBackoff() != nil {
		parts = append(parts, "back-off from "+durationText(r.GetInitialBackoff()))
	}
	if r.GetMaxBackoff() != nil {
		parts = append(parts, "to "+durationText(r.GetMaxBackoff()))
	}
	if r.GetMultiplier() > 0 {
		parts = append(parts, fmt.Sprintf("× %g", r.GetMultiplier()))
	}
	return strings.Join(parts, ", ")
}

func (a *app) scheduleText(s *waterclockv1.Schedule) string {
	text := "once"
	switch k := s.GetKind().(type) {
	case *waterclockv1.Schedule_Every:
		text = "every " + durationText(k.Every.GetPeriod())
	case *waterclockv1.Schedule_Cron:
		text = k.Cron.GetSpec() + " " + first(k.Cron.GetZone(), "UTC")
	}
	zone := a.Now().Location()
	if s.GetStart() != nil {
		text += ", from " + s.GetStart().AsTime().In(zone).Format(time.RFC3339)
	}
	if s.GetEnd() != nil {
		text += ", until " + s.GetEnd().AsTime().In(zone).Format(time.RFC3339)
	}
	if s.GetJitter() != nil {
		text += ", jitter " + durationText(s.GetJitter())
	}
	return clean(text)
}

func durationText(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return short(d.AsDuration())
}
