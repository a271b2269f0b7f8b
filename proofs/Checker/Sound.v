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
  - apply Forall_forall; intros x Hx. match goal with E : forallb _ (axis_sizes m) = true |- _ =>
      rewrite forallb_forall in E; apply Z.leb_le, E, Hx end.
  - split; [apply distinct_NoDup; assumption|split; [assumption|]]. apply Forall_forall; intros x Hx.
    match goal with E : forallb _ (device_at m) = true |- _ => rewrite forallb_forall in E; apply Z.leb_le, E, Hx end.
Qed.

Lemma in_span m d : In d (device_at m) -> d < span m.
Proof.
  unfold span. induction (device_at m) as [|e l IH]; [intros []|]. cbn [fold_right].
  intros [->|I]; [|specialize (IH I)]; lia.
Qed.

(** Device numbers are below the number of devices, of which neither mesh needs to have all. *)
Lemma in_mesh m n d : mesh_ok m -> span m <= n -> has_device m d = true -> is_device n d = true.
Proof.
  intros (_ & _ & _ & P) Hn H. apply mem_In in H. apply is_device_iff. rewrite Forall_forall in P.
  pose proof (P d H). pose proof (in_span m d H). lia.
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
  Definition among (w : device -> bool) (d : device) : bool := is_device n d && w d.

  (** A sound step takes tiles to tiles. *)
  Lemma routed_step {V} (st : state V) x t w o (v : point -> V) :
    agrees st (holding (among w) t o v) ->
    same_place p t (tile_at p (before x)) w (has_tile (placed p (before x))) o (offset_at p (before x)) ->
    routed n s (placed p (before x)) (placed p (after x)) (act x) ->
    agrees (run_step p st x) (placed_state p (after x) v).
  Proof.
    intros Hst [Et Eo] Hr d l. unfold run_step, step_supply, placed_state, holding.
    destruct (is_holder n (placed p (after x)) d) eqn:Hd; cbn [andb].
    - destruct (inside (tile_at p (after x)) l) eqn:Hl.
      + destruct (Hr d l Hd Hl) as (m & k & -> & Hm & Hk & Hg & _).
        apply is_holder_iff in Hm. destruct Hm as [Hm Tm]. destruct (Eo m Hm) as [Ew Em].
        rewrite Hst. unfold holding, among. rewrite Hm, Ew, Tm, Et. unfold tile_at at 1. rewrite Hk. cbn [andb].
        rewrite Em by congruence. unfold offset_at. rewrite Hg. reflexivity.
      + unfold supply. rewrite Hd. unfold tile_at in Hl. rewrite Hl. reflexivity.
    - unfold supply. rewrite Hd. reflexivity.
  Qed.

  Lemma check_same_place_ok t t' w w' o o' : check_same_place p t t' w w' o o' = true -> same_place p t t' w w' o o'.
  Proof.
    unfold check_same_place; intros H; split_bool. split; [apply same_eq; assumption|].
    intros d Hd. rewrite forallb_forall in H. specialize (H d (proj2 (In_devices n d) Hd)). split_bool.
    match goal with E : Bool.eqb _ _ = true |- _ => apply Bool.eqb_prop in E end.
    split; [assumption|]. intros W. rewrite W in H. apply same_eq, H.
  Qed.

  Lemma check_path_ok passes ss : forall t w o, check_path p passes t w o ss = true ->
    path p t w o ss /\
    forall x, In x ss -> In (placed p (before x)) (placements p) /\ In (placed p (after x)) (placements p) /\
                         passes (placed p (before x)) (placed p (after x)) (act x) = true.
  Proof.
    induction ss as [|x ss IH]; intros t w o H; cbn [check_path path] in *.
    - split; [apply check_same_place_ok, H|intros x []].
    - destruct (lookup (placements p) (before x)) as [b|] eqn:Eb; [|discriminate].
      destruct (lookup (placements p) (after x)) as [a|] eqn:Ea; [|discriminate].
      assert (Hb : placed p (before x) = b) by (unfold placed, entry; rewrite Eb; reflexivity).
      assert (Ha : placed p (after x) = a) by (unfold placed, entry; rewrite Ea; reflexivity).
      apply lookup_In in Eb. apply lookup_In in Ea. subst a b. split_bool.
      destruct (IH _ _ _ H) as [Q1 Q2]. split; [split; [apply check_same_place_ok; assumption|exact Q1]|].
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
    mesh_ok (target_mesh p) -> forall t w o st, path p t w o ss -> agrees st (holding (among w) t o v) ->
    agrees (run p ss st) (target_state p v) /\
    forall done x rest, ss = done ++ x :: rest -> agrees (run p (done ++ [x]) st) (placed_state p (after x) v).
  Proof.
    intros F M. induction ss as [|x ss IH]; intros t w o st Hp Hst; cbn [path] in Hp.
    - split; [|intros [|? ?] ? ? E; discriminate]. destruct Hp as [-> Ho]. intros d l. cbn [run fold_left].
      rewrite Hst. unfold target_state, holding, among. destruct (is_device n d) eqn:Hd; cbn [andb].
      + destruct (Ho d Hd) as [<- E]. destruct (w d); [|reflexivity]. rewrite E by reflexivity. reflexivity.
      + destruct (has_device (target_mesh p) d) eqn:E; [|reflexivity].
        apply (in_mesh _ n) in E; [congruence|exact M|apply Z.le_max_r].
    - destruct Hp as [Hsame Hp]. destruct (fine_routed x (F x (or_introl eq_refl))) as [_ Hr].
      pose proof (routed_step st x t w o v Hst Hsame Hr) as Hx.
      destruct (IH (fun y Hy => F y (or_intror Hy)) _ _ _ (run_step p st x) Hp Hx) as [H1 H2].
      split; [exact H1|]. intros [|y done] z rest E; cbn [app] in E; injection E as -> E.
      + exact Hx.
      + exact (H2 done z rest E).
  Qed.

  Definition keeps : Prop := redistributes p /\ tracks_placements p /\
    (forall x, In x (steps p) -> lawful p x) /\ (forall x, In x (steps p) -> counts_exactly p x) /\
    (forall x, In x (steps p) -> prod (tile_at p (after x)) <= limit).

  Lemma bound_ok t : check_bound limit t = true -> prod t <= limit.
  Proof. unfold check_bound; intros H; split_bool; exact H. Qed.

  Lemma source_among {V} (v : point -> V) : mesh_ok (source_mesh p) ->
    agrees (source_state p v)
      (holding (among (has_device (source_mesh p))) (local_shape (source p)) (base_offset (source_mesh p) (source p)) v).
  Proof.
    intros M d l. unfold source_state, holding, among. destruct (has_device (source_mesh p) d) eqn:E.
    - rewrite (in_mesh _ n _ M (Z.le_max_l _ _) E). reflexivity.
    - rewrite andb_false_r. reflexivity.
  Qed.

  Lemma full_keeps : mesh_ok (source_mesh p) -> mesh_ok (target_mesh p) -> leads_from_source_to_target p ->
    (forall x, In x (steps p) -> step_fine x) -> keeps.
  Proof.
    intros Ms Mt Hpath Hfine. split; [|split; [|split; [|split]]].
    - intros V v. apply (path_runs v _ Hfine Mt _ _ _ (source_state p v) Hpath), source_among, Ms.
    - intros done x rest E V v.
      apply (path_runs v _ Hfine Mt _ _ _ (source_state p v) Hpath (source_among v Ms)) with (rest := rest), E.
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

  Lemma holding_nothing {V} w t o (v : point -> V) : hollow t = true -> agrees (holding w t o v) nothing.
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

  Lemma path_hollow ss : (forall x, In x ss -> step_empty x) -> forall t w o, hollow t = true -> path p t w o ss ->
    hollow (local_shape (target p)) = true.
  Proof.
    induction ss as [|x ss IH]; intros F t w o H; cbn [path].
    - intros [<- _]; exact H.
    - intros [_ Hp]. apply (IH (fun y Hy => F y (or_intror Hy)) _ _ _ (after_hollow x (F x (or_introl eq_refl))) Hp).
  Qed.

  Lemma empty_lawful x : step_empty x -> lawful p x /\ counts_exactly p x.
  Proof.
    unfold step_empty, check_empty_step; intros H; split_bool. split; [split|].
    - destruct (act x) as [|groups|groups|pairs|how [|]]; cbn [check_empty_action collective_ok] in *;
        try discriminate; try exact I; try (eapply check_groups_ok; [apply In_holders|eassumption]).
      + split_bool. split; [apply one_way_ok; assumption|apply senders_ok; assumption].
      + split; [intros h []|split; [intros h g []|split; [constructor|]]].
        intros r; repeat split; try constructor; contradiction.
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
      apply (path_hollow _ F _ _ _ H0 Hpath).
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
    repeat match goal with E : check_mesh _ = true |- _ => apply check_mesh_ok in E end.
    assert (K : leads_from_source_to_target p /\ keeps).
    { destruct (hollow (local_shape (source p))) eqn:Hollow; split_bool.
      - match goal with E : check_steps p _ = true |- _ => apply check_path_ok in E; destruct E as [Hp F] end.
        split; [exact Hp|]. apply empty_keeps; [exact Hollow|exact Hp|]. intros x Hx. apply (F x Hx).
      - match goal with E : check_steps p _ = true |- _ => apply full_fine in E; [|assumption]; destruct E as [Hp F] end.
        split; [exact Hp|apply full_keeps; assumption]. }
    destruct K as (Hpath & K1 & K2 & K3 & K4 & K5).
    constructor; try assumption.
    - repeat match goal with
      | E : check_type _ _ = true |- _ => apply check_type_ok in E
      | E : same _ _ = true |- _ => apply same_eq in E
      end. unfold types_ok; tauto.
    - split; [apply bound_ok; assumption|exact K5].
  Qed.
End Plan.

Theorem check_plan_sound p : check_plan p = true -> promises p (larger_end p).
Proof. apply check_plan_within_sound. Qed.
