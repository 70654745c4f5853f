package build

import (
	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// ViewSpec returns the spec that a manifest declares. Topics have the names of their manifests.
func ViewSpec(view *v1alpha1.View) (coordination.ViewSpec, error) {
	asked := &view.Spec
	spec := coordination.ViewSpec{Topic: asked.TopicRef.Name, DeletionPolicy: coordination.DeletionPolicy(asked.DeletionPolicy)}
	compute := &spec.Compute
	compute.By = asked.By
	if f := asked.Filter; f != nil {
		compute.Filter.Where = f.Where
		for _, s := range f.Subjects {
			compute.Filter.Subjects = append(compute.Filter.Subjects, string(s))
		}
	}
	if len(asked.Values) > 0 {
		compute.Values = map[string]string{}
		for name, value := range asked.Values {
			compute.Values[name] = string(value)
		}
	}
	if asked.Output != nil {
		spec.Output = asked.Output.TopicRef.Name
	}
	for _, t := range asked.Triggers {
		if spec.Alerts == nil {
			spec.Alerts = map[string]string{}
		}
		spec.Alerts[t.Name] = t.Output.TopicRef.Name
		compute.Triggers = append(compute.Triggers, coordination.ViewTrigger{Name: t.Name, When: t.When, Until: t.Until})
	}
	if asked.Window == nil {
		return spec, nil
	}
	var err error
	compute.Window, err = window(asked.Window)
	return spec, err
}

func window(asked *v1alpha1.WindowSpec) (w coordination.ViewWindow, err error) {
	w.Time = asked.Time
	if asked.Sliding != nil {
		w.Sliding = &coordination.ViewSliding{}
		if w.Sliding.Size, err = duration("window.sliding.size", asked.Sliding.Size); err != nil {
			return w, err
		}
		if w.Sliding.Every, err = duration("window.sliding.every", asked.Sliding.Every); err != nil {
			return w, err
		}
	}
	if w.Tumbling, err = duration("window.tumbling", asked.Tumbling); err != nil {
		return w, err
	}
	if w.Session, err = duration("window.session", asked.Session); err != nil {
		return w, err
	}
	if w.Lateness, err = duration("window.lateness", asked.Lateness); err != nil {
		return w, err
	}
	w.Idle, err = duration("window.idle", asked.Idle)
	return w, err
}
