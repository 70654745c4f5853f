package work

import "sync/atomic"

// Task is something that has work to do from time to time. It embeds a State.
type Task interface{ taskState() *State }

// State is the state of a Task in its Tasks. The zero value is an idle task.
type State struct{ bits atomic.Uint32 }

func (s *State) taskState() *State { return s }

// The bits of a State: running, and for each lane whether the task has work (wanted) and whether it
// has an entry in the lane's queue (queued).
const (
	running      uint32 = 1
	firstWanted  uint32 = 1 << 8
	firstQueued  uint32 = 1 << 16
	wantedByLane        = firstWanted | firstWanted<<1 | firstWanted<<2
)

func wanted(lane Lane) uint32 { return firstWanted << lane }
func queued(lane Lane) uint32 { return firstQueued << lane }

// Tasks steps tasks that were woken. Each of its goroutines has a W of its own, which is passed to
// steps.
type Tasks[T Task, W any] struct {
	queue queue[T, W]
	step  func(w *W, task T, lane Lane) (more bool)
}

// NewTasks returns Tasks that step on up to workers goroutines. They start on demand and stay until
// Close. step does a bounded part of a task's work and reports whether there is more in that lane.
// Then other tasks of the lane are stepped before it.
func NewTasks[T Task, W any](workers int, step func(w *W, task T, lane Lane) (more bool)) *Tasks[T, W] {
	t := &Tasks[T, W]{step: step}
	t.queue.init(workers, workers, t.run)
	return t
}

// Wake queues a task in that lane, unless it is queued there already. After Close it has no effect.
func (t *Tasks[T, W]) Wake(task T, lane Lane) {
	state := &task.taskState().bits
	for {
		is := state.Load()
		if is&wanted(lane) != 0 {
			return
		}
		to := is | wanted(lane)
		enters := is&(running|queued(lane)) == 0
		if enters {
			to |= queued(lane)
		}
		if state.CompareAndSwap(is, to) {
			if enters {
				t.push(task, lane)
			}
			return
		}
	}
}

func (t *Tasks[T, W]) push(task T, lane Lane) {
	t.queue.mu.Lock()
	signal := t.queue.push(task, lane)
	t.queue.mu.Unlock()
	if signal {
		t.queue.some.Signal()
	}
}

// run steps a task for an entry of a lane's queue. If another goroutine steps the task, the entry
// is dropped, and that goroutine queues the task again at its end.
func (t *Tasks[T, W]) run(w *W, task T, lane Lane) {
	state := &task.taskState().bits
	for {
		is := state.Load()
		to := is &^ queued(lane)
		if is&running == 0 {
			to = to&^wanted(lane) | running
		}
		if state.CompareAndSwap(is, to) {
			if is&running != 0 {
				return
			}
			break
		}
	}
	more := t.step(w, task, lane)
	for {
		is := state.Load()
		to := is &^ running
		if more {
			to |= wanted(lane)
		}
		enter := to & wantedByLane << 8 &^ to // wanted, without an entry
		if state.CompareAndSwap(is, to|enter) {
			for l := range lanes {
				if enter&queued(l) != 0 {
					t.push(task, l)
				}
			}
			return
		}
	}
}

// Close drops queued tasks and waits for running steps.
func (t *Tasks[T, W]) Close() { t.queue.close(false) }
