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

  Lemma check_path_ok passes ss : forall t o, check_path p passes t o ss = true ->
    path p t o ss /\
    forall x, In x ss -> In (placed p (before x)) (placements p) /\ In (placed p (after x)) (placements p) /\
                         passes (placed p (before x)) (placed p (after x)) (act x) = true.
  Proof.
    induction ss as [|x ss IH]; intros t o H; cbn [check_path path] in *.
    - split; [apply check_same_place_ok, H|intros x []].
    - destruct (lookup (placements p) (before x)) as [b|] eqn:Eb; [|discriminate].
      destruct (lookup (placements p) (after x)) as [a|] eqn:Ea; [|discriminate].
      assert (Hb : placed p (before x) = b) by (unfold placed, entry; rewrite Eb; reflexivity).
      assert (Ha : placed p (after x) = a) by (unfold placed, entry; rewrite Ea; reflexivity).
      apply lookup_In in Eb. apply lookup_In in Ea. subst a b. split_bool.
      destruct (IH _ _ H) as [Q1 Q2]. split; [split; [apply check_same_place_ok; assumption|exact Q1]|].
      intros y [<-|Hy]; [|auto]. repeat split; assumption.
  Qed.

  (** *** Arrays with elements *)

  Definition step_fine (x : step) : Prop :=
    check_placement n s (placed p (before x)) = true /\ check_placement n s (placed p (after x)) = true /\
    check_action n s (placed p (before x)) (placed p (after x)) (act x) = true /\
    check_bound limit (tile_at p (after x)) = true.

  Lemma full_fine : forallb (check_placement n s) (placements p) = true -> check_steps p (check_full_step p limit) = true ->
    leads_from_source_to_target p /\ forall x, In x (steps p) -> step_fine x.
  Proof.
    intros Hp H; rewrite forallb_forall in Hp. apply check_path_ok in H. destruct H as [H F]. split; [exact H|].
    intros x Hx. destruct (F x Hx) as (Hb & Ha & Hf). unfold check_full_step in Hf. split_bool.
    repeat split; auto.
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

  Definition keeps : Prop := redistributes p /\ tracks_placements p /\
    (forall x, In x (steps p) -> lawful p x) /\ (forall x, In x (steps p) -> counts_exactly p x) /\
    (forall x, In x (steps p) -> prod (tile_at p (after x)) <= limit).

  Lemma bound_ok t : check_bound limit t = true -> prod t <= limit.
  Proof. unfold check_bound; intros H; split_bool; exact H. Qed.

  Lemma full_keeps : leads_from_source_to_target p -> (forall x, In x (steps p) -> step_fine x) -> keeps.
  Proof.
    intros Hpath Hfine. split; [|split; [|split; [|split]]].
    - intros V v. apply (path_runs v _ Hfine _ _ (source_state p v) Hpath). intros d l; reflexivity.
    - intros done x rest E V v. apply (path_runs v _ Hfine _ _ (source_state p v) Hpath) with (rest := rest);
        [intros d l; reflexivity|exact E].
    - intros x Hx. destruct (fine_routed x (Hfine x Hx)) as [Q1 Q2]. split; [exact Q1|].
      intros d l Hd Hl. destruct (Q2 d l Hd Hl) as (m & k & E & Hm & Hk & _ & Hs).
      exists m, k. repeat split; assumption.
    - intros x Hx d Hd. destruct (Hfine x Hx) as (Hb & Ha & Hc & _). split; [apply received_ok; assumption|apply padding_ok].
    - intros x Hx. destruct (Hfine x Hx) as (_ & _ & _ & B). apply bound_ok, B.
  Qed.

  (** *** Arrays without elements *)

  Lemma hollow_inside t l : hollow t = true -> inside t l = false.
  Proof.
    revert l; induction t as [|e t IH]; intros l H; [discriminate|]. destruct l as [|x l]; [reflexivity|].
    cbn [hollow existsb inside] in *. destruct (Z.eqb_spec 0 e) as [<-|].
    - destruct (Z.leb_spec 0 x); [|reflexivity]. destruct (Z.ltb_spec x 0); [lia|reflexivity].
    - cbn [orb] in H. rewrite (IH l H), andb_false_r. reflexivity.
  Qed.

  Lemma hollow_cells t : hollow t = true -> cells t = [].
  Proof.
    intros H. destruct (cells t) as [|l ls] eqn:E; [reflexivity|].
    assert (I : In l (cells t)) by (rewrite E; left; reflexivity).
    apply In_cells in I. rewrite hollow_inside in I by exact H. discriminate.
  Qed.

  Lemma hollow_prod t : hollow t = true -> prod t = 0.
  Proof.
    induction t as [|e t IH]; intros H; [discriminate|]. cbn [hollow existsb] in H. change (prod (e :: t)) with (e * prod t).
    destruct (Z.eqb_spec 0 e) as [<-|]; [lia|]. cbn [orb] in H. rewrite (IH H). lia.
  Qed.

  Definition step_empty (x : step) : Prop :=
    check_empty_step p limit (placed p (before x)) (placed p (after x)) (act x) = true.

  Lemma after_hollow x : step_empty x -> hollow (tile_at p (after x)) = true.
  Proof. unfold step_empty, check_empty_step; intros H; split_bool; assumption. Qed.

  Definition nothing {V} : state V := fun _ _ => None.

  Lemma holding_nothing {V} t o (v : point -> V) : hollow t = true -> agrees (holding n t o v) nothing.
  Proof. intros H d l. unfold holding. rewrite hollow_inside by exact H. rewrite andb_false_r. reflexivity. Qed.

  Lemma step_nothing {V} (st : state V) x : step_empty x -> agrees (run_step p st x) nothing.
  Proof.
    intros H d l. apply after_hollow in H. unfold run_step, step_supply, supply. unfold tile_at in H.
    rewrite (hollow_inside _ l H), andb_false_r. reflexivity.
  Qed.

  Lemma run_nothing {V} ss : (forall x, In x ss -> step_empty x) -> forall st : state V, agrees st nothing ->
    agrees (run p ss st) nothing.
  Proof.
    induction ss as [|x ss IH]; intros F st H; [exact H|]. unfold run; cbn [fold_left].
    apply IH; [intros y Hy; apply F; right; exact Hy|]. apply step_nothing, F. left; reflexivity.
  Qed.

  Lemma path_hollow ss : (forall x, In x ss -> step_empty x) -> forall t o, hollow t = true -> path p t o ss ->
    hollow (local_shape (target p)) = true.
  Proof.
    induction ss as [|x ss IH]; intros F t o H; cbn [path].
    - intros [<- _]; exact H.
    - intros [_ Hp]. apply (IH (fun y Hy => F y (or_intror Hy)) _ _ (after_hollow x (F x (or_introl eq_refl))) Hp).
  Qed.

  Lemma empty_lawful x : step_empty x -> lawful p x /\ counts_exactly p x.
  Proof.
    unfold step_empty, check_empty_step; intros H; split_bool. split; [split|].
    - destruct (act x) as [|groups|groups|pairs|how [|]]; cbn [check_empty_action collective_ok] in *;
        try apply check_groups_ok; try apply one_way_ok; auto; try discriminate.
      split; [intros h g []|split; [constructor|]]. intros r; repeat split; try constructor; contradiction.
    - intros d l _ Hl. unfold tile_at in Hl. rewrite hollow_inside in Hl by assumption. discriminate.
    - intros d Hd. cbv zeta. split; [|apply padding_ok]. unfold from_others. rewrite hollow_cells by assumption. cbn [filter len length Z.of_nat].
      destruct (act x) as [|groups|groups|pairs|how [|]]; cbn [received padding check_empty_action] in *; try discriminate;
        rewrite ?hollow_prod by assumption; rewrite ?Z.mul_0_r; try reflexivity.
      destruct (existsb _ _); reflexivity.
  Qed.

  Lemma empty_keeps : hollow (local_shape (source p)) = true -> leads_from_source_to_target p ->
    (forall x, In x (steps p) -> step_empty x) -> keeps.
  Proof.
    intros H0 Hpath F.
    assert (S0 : forall V (v : point -> V), agrees (source_state p v) nothing)
      by (intros V v; apply holding_nothing; exact H0).
    split; [|split; [|split; [|split]]].
    - intros V v d l. rewrite (run_nothing _ F _ (S0 V v) d l). symmetry. apply holding_nothing.
      apply (path_hollow _ F _ _ H0 Hpath).
    - intros done x rest E V v d l. assert (Fx : step_empty x) by (apply F; rewrite E; apply in_elt).
      unfold run. rewrite fold_left_app. cbn [fold_left].
      rewrite (step_nothing _ x Fx d l). symmetry. apply holding_nothing, after_hollow, Fx.
    - intros x Hx. apply (empty_lawful x (F x Hx)).
    - intros x Hx. apply (empty_lawful x (F x Hx)).
    - intros x Hx. specialize (F x Hx). unfold step_empty, check_empty_step in F. split_bool. apply bound_ok. assumption.
  Qed.

  (** The checker says yes only to plans that keep every promise. *)
  Theorem check_plan_within_sound : check_plan_within p limit = true -> promises p limit.
  Proof.
    unfold check_plan_within; intros H; split_bool.
    assert (K : leads_from_source_to_target p /\ keeps).
    { destruct (hollow (local_shape (source p))) eqn:Hollow; split_bool.
      - match goal with E : check_steps p _ = true |- _ => apply check_path_ok in E; destruct E as [Hp F] end.
        split; [exact Hp|]. apply empty_keeps; [exact Hollow|exact Hp|]. intros x Hx. apply (F x Hx).
      - match goal with E : check_steps p _ = true |- _ => apply full_fine in E; [|assumption]; destruct E as [Hp F] end.
        split; [exact Hp|apply full_keeps; assumption]. }
    destruct K as (Hpath & K1 & K2 & K3 & K4 & K5).
    constructor; try assumption.
    - repeat match goal with
      | E : check_mesh _ = true |- _ => apply check_mesh_ok in E
      | E : check_type _ _ = true |- _ => apply check_type_ok in E
      | E : same _ _ = true |- _ => apply same_eq in E
      end. unfold types_ok; tauto.
    - split; [apply bound_ok; assumption|exact K5].
  Qed.
End Plan.

Theorem check_plan_sound p : check_plan p = true -> promises p (larger_end p).
Proof. apply check_plan_within_sound. Qed.
