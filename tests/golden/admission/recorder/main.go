// Command recorder answers writes of custom resources with the code of kube-apiserver.
//
// It reads {"crd", "cases": [{"object", "before", "is_status"}]} from stdin and writes {"crdErrors", "answers"} to
// stdout: per case the object after defaulting and pruning, the paths of unknown fields, and the errors. The order of
// the checks is that of the custom resource strategies in k8s.io/apiextensions-apiserver. record.py runs it.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

type object = map[string]any

type request struct {
	CRD   json.RawMessage `json:"crd"`
	Cases []struct {
		Object   json.RawMessage `json:"object"`
		Before   json.RawMessage `json:"before"`
		IsStatus bool            `json:"is_status"`
	} `json:"cases"`
}

type answer struct {
	Object  object   `json:"object"`
	Unknown []string `json:"unknown"`
	Errors  []string `json:"errors"`
}

type judge struct {
	structural *schema.Structural
	values     validation.SchemaValidator
	status     validation.SchemaValidator
	rules      *cel.Validator
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	var in request
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		log.Fatal(err)
	}
	crd, errors := readCRD(in.CRD)
	j := newJudge(crd)
	answers := []answer{}
	for _, c := range in.Cases {
		obj, unknown := j.read(c.Object)
		var errs field.ErrorList
		if len(c.Before) == 0 || string(c.Before) == "null" {
			errs = j.create(obj)
		} else {
			old, _ := j.read(c.Before)
			errs = j.update(obj, old, c.IsStatus)
		}
		answers = append(answers, answer{obj, sorted(unknown), texts(errs)})
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"crdErrors": errors, "answers": answers}); err != nil {
		log.Fatal(err)
	}
}

func readCRD(raw []byte) (*apiv1.CustomResourceDefinition, []string) {
	crd := &apiv1.CustomResourceDefinition{}
	if err := json.Unmarshal(raw, crd); err != nil {
		log.Fatal(err)
	}
	apiv1.SetObjectDefaults_CustomResourceDefinition(crd)
	crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
		log.Fatal(err)
	}
	return crd, texts(crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal))
}

func newJudge(crd *apiv1.CustomResourceDefinition) judge {
	props := &apiextensions.JSONSchemaProps{}
	if err := apiv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil); err != nil {
		log.Fatal(err)
	}
	structural := must(schema.NewStructural(props))
	values, _, err := validation.NewSchemaValidator(props)
	values = must(values, err)
	statusProps := props.Properties["status"]
	status, _, err := validation.NewSchemaValidator(&statusProps)
	status = must(status, err)
	return judge{structural, values, status, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func (j judge) read(raw []byte) (object, []string) {
	var obj object
	if err := utiljson.Unmarshal(raw, &obj); err != nil {
		log.Fatal(err)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, j.structural)
	defaulting.Default(obj, j.structural)
	tracked := schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	unknown := pruning.PruneWithOptions(obj, j.structural, true, tracked)
	fault, inMetadata := objectmeta.CoerceWithOptions(nil, obj, j.structural, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if fault != nil {
		log.Fatal(fault)
	}
	return obj, append(unknown, inMetadata...)
}

func (j judge) create(obj object) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, obj, j.values)
	errs = append(errs, objectmeta.Validate(nil, obj, j.structural, false)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, obj)...)
	return j.withRules(errs, obj, nil)
}

func (j judge) update(obj, old object, isStatus bool) field.ErrorList {
	pair := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: j.structural})
	var errs field.ErrorList
	if status, has := obj["status"]; isStatus && has {
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], j.status, validation.WithRatcheting(pair.Key("status")))
	} else if !isStatus {
		errs = validation.ValidateCustomResourceUpdate(nil, obj, old, j.values, validation.WithRatcheting(pair))
		errs = append(errs, objectmeta.Validate(nil, obj, j.structural, false)...)
	}
	if len(listtype.ValidateListSetsAndMaps(nil, j.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, j.structural, obj)...)
	}
	return j.withRules(errs, obj, old, cel.WithRatcheting(pair))
}

func (j judge) withRules(errs field.ErrorList, obj, old object, options ...cel.Option) field.ErrorList {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	if j.rules == nil {
		return errs
	}
	var before any
	if old != nil {
		before = old
	}
	found, _ := j.rules.Validate(context.Background(), nil, j.structural, obj, before, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, found...)
}

func texts(errs field.ErrorList) []string {
	found := []string{}
	for _, err := range errs {
		found = append(found, err.Error())
	}
	return sorted(found)
}

func sorted(words []string) []string {
	words = append([]string{}, words...)
	sort.Strings(words)
	return words
}
