(** * The checker is sound: what it accepts keeps the promises of [Spec.v] *)

From Coq Require Import ZArith List Bool Lia Arith.
From Redistrib.Checker Require Import Spec Check Vectors Steps Counts.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** ** Meshes and types *)

Lemma check_mesh_ok m : check_mesh m = true -> mesh_ok m.
Proof.
  unfold check_mesh; intros H; split_bool. split.
  - apply Forall_forall; intros x Hx. rewrite forallb_forall in H0. apply Z.leb_le, H0, Hx.
  - apply partition_ok; assumption.
Qed.

Lemma check_type_ok m t : check_type m t = true -> type_ok m t.
Proof.
  unfold check_type; intros H; split_bool. repeat split.
  - apply Forall_forall; intros e He. rewrite forallb_forall in H. specialize (H e He). split_bool. auto.
  - intros x Hx. match goal with E : forallb _ (flat_map _ _) = true |- _ => rewrite forallb_forall in E;
      specialize (E x Hx); apply is_device_iff in E; revert E end.
    generalize (axis_sizes m); clear. intros l; unfold len; revert x; induction l as [|y l IH]; intros x H;
      cbn [length lookup] in *; [lia|].
    destruct (Z.eqb_spec x 0); [discriminate|]. apply IH; lia.
  - apply distinct_NoDup; assumption.
Qed.

(** ** The whole plan *)

Section Plan.
  Variable p : plan.
  Variable limit : Z.
  Notation n := (device_count p).
  Notation s := (array_shape p).

  Definition agrees {V} (f g : state V) : Prop := forall d l, f d l = g d l.

  (** A sound step takes tiles to tiles. *)
  Lemma routed_step {V} (st : state V) x t o (v : point -> V) :
    agrees st (holding n t o v) ->
    same_place p t (tile_at p (before x)) o (offset_at p (before x)) ->
    routed n s (placed p (before x)) (placed p (after x)) (act x) ->
    agrees (run_step p st x) (placed_state p (after x) v).
  Proof.
    intros Hst [Et Eo] Hr d l. unfold run_step, step_supply, placed_state, holding.
    destruct (is_device n d) eqn:Hd; cbn [andb].
    - destruct (inside (tile_at p (after x)) l) eqn:Hl.
      + destruct (Hr d l Hd Hl) as (m & k & -> & Hm & Hk & Hg & _).
        rewrite Hst. unfold holding. rewrite Hm, Et. unfold tile_at at 1. rewrite Hk. cbn [andb].
        rewrite Eo by exact Hm. unfold offset_at. rewrite Hg. reflexivity.
      + unfold supply. rewrite Hd. unfold tile_at in Hl. rewrite Hl. reflexivity.
    - unfold supply. rewrite Hd. reflexivity.
  Qed.

  Lemma check_same_place_ok t t' o o' : check_same_place p t t' o o' = true -> same_place p t t' o o'.
  Proof.
    unfold check_same_place; intros H; split_bool. split; [apply same_eq; assumption|].
    intros d Hd. rewrite forallb_forall in H. apply same_eq, H, In_devices, Hd.
  Qed.

  Definition step_fine (x : step) : Prop :=
    check_placement n s (placed p (before x)) = true /\ check_placement n s (placed p (after x)) = true /\
    check_action n s (placed p (before x)) (placed p (after x)) (act x) = true /\
    check_bound limit (tile_at p (after x)) = true.

  Lemma check_path_ok : forallb (check_placement n s) (placements p) = true ->
    forall ss t o, check_path p limit t o ss = true -> path p t o ss /\ forall x, In x ss -> step_fine x.
  Proof.
    intros Hp; rewrite forallb_forall in Hp.
    induction ss as [|x ss IH]; intros t o H; cbn [check_path path] in *.
    - split; [apply check_same_place_ok, H|intros x []].
    - destruct (lookup (placements p) (before x)) as [b|] eqn:Eb; [|discriminate].
      destruct (lookup (placements p) (after x)) as [a|] eqn:Ea; [|discriminate].
      assert (Hb : placed p (before x) = b) by (unfold placed, entry; rewrite Eb; reflexivity).
      assert (Ha : placed p (after x) = a) by (unfold placed, entry; rewrite Ea; reflexivity).
      apply lookup_In, Hp in Eb. apply lookup_In, Hp in Ea. subst a b. split_bool.
      destruct (IH _ _ H) as [Q1 Q2]. split; [split; [apply check_same_place_ok; assumption|exact Q1]|].
      intros y [<-|Hy]; [|auto]. repeat split; assumption.
  Qed.

  Lemma fine_routed x : step_fine x ->
    collective_ok n s (placed p (before x)) (placed p (after x)) (act x) /\
    routed n s (placed p (before x)) (placed p (after x)) (act x).
  Proof. intros (Hb & Ha & Hx & _). apply action_ok; assumption. Qed.

  Lemma path_runs {V} (v : point -> V) ss : (forall x, In x ss -> step_fine x) ->
    forall t o st, path p t o ss -> agrees st (holding n t o v) ->
    agrees (run p ss st) (target_state p v) /\
    forall done x rest, ss = done ++ x :: rest -> agrees (run p (done ++ [x]) st) (placed_state p (after x) v).
  Proof.
    induction ss as [|x ss IH]; intros F t o st Hp Hst; cbn [path] in Hp.
    - split; [|intros [|? ?] ? ? E; discriminate]. destruct Hp as [-> Ho]. intros d l. cbn [run fold_left].
      rewrite Hst. unfold target_state, holding. destruct (is_device n d) eqn:Hd; [|reflexivity].
      rewrite Ho by exact Hd. reflexivity.
    - destruct Hp as [Hsame Hp]. destruct (fine_routed x (F x (or_introl eq_refl))) as [_ Hr].
      pose proof (routed_step st x t o v Hst Hsame Hr) as Hx.
      destruct (IH (fun y Hy => F y (or_intror Hy)) _ _ (run_step p st x) Hp Hx) as [H1 H2].
      split; [exact H1|]. intros [|y done] z rest E; cbn [app] in E; injection E as -> E.
      + exact Hx.
      + exact (H2 done z rest E).
  Qed.

  (** The checker says yes only to plans that keep every promise. *)
  Theorem check_plan_within_sound : check_plan_within p limit = true -> promises p limit.
  Proof.
    unfold check_plan_within; intros H; split_bool.
    match goal with E : forallb (check_placement _ _) _ = true |- _ =>
      destruct (check_path_ok E _ _ _ H) as [Hpath Hfine] end.
    constructor.
    - repeat match goal with
      | E : check_mesh _ = true |- _ => apply check_mesh_ok in E
      | E : check_type _ _ = true |- _ => apply check_type_ok in E
      | E : same _ _ = true |- _ => apply same_eq in E
      end. unfold types_ok; tauto.
    - exact Hpath.
    - intros V v. apply (path_runs v _ Hfine _ _ (source_state p v) Hpath). intros d l; reflexivity.
    - intros done x rest E V v. apply (path_runs v _ Hfine _ _ (source_state p v) Hpath) with (rest := rest);
        [intros d l; reflexivity|exact E].
    - intros x Hx. destruct (fine_routed x (Hfine x Hx)) as [Q1 Q2]. split; [exact Q1|].
      intros d l Hd Hl. destruct (Q2 d l Hd Hl) as (m & k & E & Hm & Hk & _ & Hs).
      exists m, k. repeat split; assumption.
    - intros x Hx d Hd. destruct (Hfine x Hx) as (Hb & Ha & Hc & _). apply received_ok; assumption.
    - split.
      + unfold check_bound in *; split_bool; assumption.
      + intros x Hx. destruct (Hfine x Hx) as (_ & _ & _ & B). unfold check_bound in B. split_bool. exact B.
  Qed.
End Plan.

Theorem check_plan_sound p : check_plan p = true -> promises p (larger_end p).
Proof. apply check_plan_within_sound. Qed.
