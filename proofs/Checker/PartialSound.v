(** * The checker of plans of partial arrays is sound: what it accepts keeps the promises of [PartialSpec.v] *)

From Coq Require Import ZArith List Bool Lia Arith Permutation.
From Redistrib.Checker Require Import Spec Check Vectors Steps Sound PartialSpec PartialCheck Totals PartialSteps.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** ** Summands numbered otherwise *)

Section Relabelled.
  Variables (n : Z) (y z : layout).
  Hypotheses (Hy : layout_ok n y) (Hz : layout_ok n z) (Hyz : check_same_layout n y z = true).

  Record same_layout : Prop := {
    same_shape : shape_of y = shape_of z;
    same_start : forall d, is_device n d = true -> start_of y d = start_of z d;
    same_count : summands y = summands z;
    same_kind : (summands y =? 1) || same_reduction (reduces y) (reduces z) = true;
    same_summand : forall d e, is_device n d = true -> is_device n e = true -> start_of y d = start_of y e ->
      summand_of y d = summand_of y e <-> summand_of z d = summand_of z e }.

  Lemma in_both d : is_device n d = true ->
    In ((start_of y d, summand_of y d), (start_of z d, summand_of z d)) (combine (rows n y) (rows n z)).
  Proof.
    intros Hd. apply In_devices in Hd. unfold rows. revert Hd. generalize (range n). intros l; induction l as [|e l IH]; intros H; [destruct H|].
    cbn [map combine]. destruct H as [->|H]; [left; reflexivity|right; auto].
  Qed.

  Lemma check_same_layout_ok : same_layout.
  Proof.
    unfold check_same_layout in Hyz. cbv zeta in Hyz. pose proof Hyz as H. split_bool.
    rewrite forallb_forall in H, H0.
    assert (E0 : forall d, is_device n d = true -> start_of y d = start_of z d).
    { intros d Hd. apply same_eq. exact (H0 _ (in_both d Hd)). }
    split; try assumption.
    - apply same_eq; assumption.
    - intros d e Hd He E. specialize (H _ (in_both d Hd)). rewrite forallb_forall in H.
      specialize (H _ (in_both e He)). cbn [fst snd] in H. rewrite (proj2 (same_eq _ _) E) in H. cbn [negb] in H.
      apply Bool.eqb_prop in H. rewrite <- !Z.eqb_eq. rewrite H. reflexivity.
  Qed.

  Let S := check_same_layout_ok.

  Definition over (g : point) : option device := find (fun d => in_box (start_of z d) (shape_of z) g) (range n).
  Definition holds (d : device) (k : Z) : option device :=
    find (fun e => (summand_of z e =? k) && same (start_of z e) (start_of z d)) (range n).

  (** The number that [y] gives to summand [k] of [z], at [g]. *)
  Definition renumbered (g : point) (k : Z) : Z :=
    match over g with
    | Some d => match holds d k with Some e => summand_of y e | None => k end
    | None => k
    end.

  Lemma holds_some d k : is_device n d = true -> is_device (summands z) k = true -> exists e,
    holds d k = Some e /\ is_device n e = true /\ summand_of z e = k /\ start_of z e = start_of z d.
  Proof.
    intros Hd Hk. destruct (layout_whole n z Hz d k Hd Hk) as (e & He & E1 & E2).
    destruct (holds d k) as [e'|] eqn:F; unfold holds in F.
    - apply find_some in F. destruct F as [F1 F2]. apply andb_prop in F2. destruct F2 as [F2 F3].
      exists e'. split; [reflexivity|]. split; [apply In_devices, F1|]. split; [apply Z.eqb_eq, F2|apply same_eq, F3].
    - exfalso. apply find_none with (x := e) in F; [|apply In_devices, He]. rewrite E1, E2, Z.eqb_refl in F.
      rewrite (proj2 (same_eq _ _) eq_refl) in F. discriminate.
  Qed.

  Lemma renumbered_perm g : Permutation (map (renumbered g) (range (summands z))) (range (summands y)).
  Proof.
    rewrite (same_count S). unfold renumbered. destruct (over g) as [d|] eqn:F.
    2: { rewrite map_id. reflexivity. }
    apply find_some in F. destruct F as [F1 _]. apply In_devices in F1.
    apply NoDup_Permutation_bis.
    - assert (G : forall ks, NoDup ks -> (forall k, In k ks -> is_device (summands z) k = true) ->
        NoDup (map (fun k => match holds d k with Some e => summand_of y e | None => k end) ks)).
      { induction ks as [|k ks IH]; intros N R; cbn [map]; constructor; inversion N as [|? ? Nk N']; subst.
        - intros I. apply in_map_iff in I. destruct I as (j & E & I).
          destruct (holds_some d k F1 (R k (or_introl eq_refl))) as (e & E1 & He & Ek & Es).
          destruct (holds_some d j F1 (R j (or_intror I))) as (e' & E1' & He' & Ek' & Es').
          rewrite E1, E1' in E. apply (same_summand S e' e He' He) in E.
          + apply Nk. replace k with j by congruence. exact I.
          + rewrite !(same_start S) by assumption. congruence.
        - apply IH; [assumption|]. intros; apply R; right; assumption. }
      apply G; [apply range_NoDup|]. intros k Hk. apply In_devices, Hk.
    - rewrite map_length. lia.
    - intros k I. apply in_map_iff in I. destruct I as (j & <- & I). apply In_devices in I.
      destruct (holds_some d j F1 I) as (e & E & He & _). rewrite E. apply In_devices. rewrite <- (same_count S).
      apply (layout_numbers n y Hy e He).
  Qed.

  Lemma relabelled {V} (A : algebra V) st x : represents A n y st x -> represents A n z st x.
  Proof.
    intros (w & Hw & Hst). exists (fun k g => w (renumbered g k) g). split.
    - intros g. rewrite <- Hw. rewrite (total_kinds A _ _ _ (fun k => w k g) (same_kind S)).
      rewrite <- (map_map (renumbered g) (fun k => w k g)). apply total_perm, Permutation_map, renumbered_perm.
    - intros d l. rewrite Hst. unfold holding. rewrite (same_shape S). destruct (is_device n d) eqn:Hd; [|reflexivity].
      rewrite (same_start S) by exact Hd. destruct (inside (shape_of z) l) eqn:Hl; cbn [andb]; [|reflexivity].
      do 2 f_equal. unfold renumbered. set (g := plus (start_of z d) l).
      assert (G : in_box (start_of z d) (shape_of z) g = true).
      { unfold in_box, g. pose proof (layout_lengths n z Hz d Hd) as L. apply inside_iff in Hl as Hl'.
        destruct Hl' as [L1 _]. replace (minus (plus (start_of z d) l) (start_of z d)) with l; [exact Hl|].
        symmetry; apply point_ext; rewrite length_minus by (rewrite length_plus by congruence; congruence);
          rewrite length_plus by congruence; [congruence|].
        intros i Hi. rewrite nth_minus, nth_plus by (rewrite ?length_plus by congruence; congruence). lia. }
      unfold over. destruct (find (fun d => in_box (start_of z d) (shape_of z) g) (range n)) as [d0|] eqn:F.
      2: { apply find_none with (x := d) in F; [congruence|apply In_devices, Hd]. }
      apply find_some in F. destruct F as [F1 F2]. apply In_devices in F1.
      pose proof (layout_tiles n z Hz d0 d g F1 Hd F2 G) as E.
      destruct (holds_some d0 (summand_of z d) F1 (layout_numbers n z Hz d Hd)) as (e & Ee & He & Ek & Es).
      rewrite Ee. apply (same_summand S d e Hd He); [|congruence]. rewrite !(same_start S) by assumption. congruence.
  Qed.
End Relabelled.

(** ** Plans *)

Section Plan.
  Variables (p : pplan) (limit : Z).
  Notation n := (pdevice_count p).
  Notation s := (parray_shape p).

  Definition step_good (x : pstep) : Prop :=
    check_pplacement n s (pplaced p (pbefore x)) = true /\ check_pplacement n s (pplaced p (pafter x)) = true /\
    check_paction n s (pplaced p (pbefore x)) (pplaced p (pafter x)) (pact x) = true /\
    check_bound limit (tile_of s (tiles (pplaced p (pafter x)))) = true.

  Fixpoint linked (y : layout) (ss : list pstep) : Prop :=
    match ss with
    | [] => check_same_layout n y (ptarget_layout p) = true
    | x :: rest => check_same_layout n y (layout_at p (pbefore x)) = true /\ linked (layout_at p (pafter x)) rest
    end.

  Lemma check_ppath_ok ss : forallb (check_pplacement n s) (pplacements p) = true -> forall y,
    check_ppath p limit y ss = true -> linked y ss /\ forall x, In x ss -> step_good x.
  Proof.
    intros P; rewrite forallb_forall in P. induction ss as [|x ss IH]; intros y H; cbn [check_ppath linked] in *.
    - split; [exact H|intros x []].
    - destruct (lookup (pplacements p) (pbefore x)) as [b|] eqn:Eb; [|discriminate].
      destruct (lookup (pplacements p) (pafter x)) as [a|] eqn:Ea; [|discriminate].
      assert (Hb : pplaced p (pbefore x) = b) by (unfold pplaced, entry; rewrite Eb; reflexivity).
      assert (Ha : pplaced p (pafter x) = a) by (unfold pplaced, entry; rewrite Ea; reflexivity).
      apply lookup_In in Eb. apply lookup_In in Ea. split_bool. unfold layout_at. rewrite Hb, Ha.
      destruct (IH _ H) as [Q1 Q2]. split; [split; assumption|].
      intros z [<-|Hz]; [|auto]. unfold step_good. rewrite Hb, Ha. auto.
  Qed.

  Lemma good_lawful x : step_good x -> plawful p x.
  Proof.
    intros (Hb & Ha & Hx & _). destruct (paction_ok n s _ _ Hb Ha _ Hx) as (_ & Hc & C & [M _]).
    split; [exact Hc|]. intros d l Hd Hl. destruct (M d l Hd Hl) as (from & [E F] & _). exists from. split; [exact E|exact F].
  Qed.

  Lemma good_represents {V} (A : algebra V) x st v : step_good x ->
    represents A n (layout_at p (pbefore x)) st v -> represents A n (layout_at p (pafter x)) (run_pstep p A st x) v.
  Proof.
    intros (Hb & Ha & Hx & _) H. destruct (paction_ok n s _ _ Hb Ha _ Hx) as (R & _ & C & M).
    exact (makes_represents n s _ _ A (pact x) C v st R M H).
  Qed.

  Lemma linked_runs {V} (A : algebra V) v ss : (forall x, In x ss -> step_good x) ->
    layout_ok n (ptarget_layout p) -> forall y st, layout_ok n y -> linked y ss -> represents A n y st v ->
    represents A n (ptarget_layout p) (prun p A ss st) v /\
    forall done x rest, ss = done ++ x :: rest -> represents A n (layout_at p (pafter x)) (prun p A (done ++ [x]) st) v.
  Proof.
    intros F T; induction ss as [|x ss IH]; intros y st Hy Hl Hst; cbn [linked] in Hl.
    - split; [|intros [|? ?] ? ? E; discriminate]. cbn [prun fold_left].
      exact (relabelled n y _ Hy T Hl A st v Hst).
    - destruct Hl as [Hl Hn]. destruct (F x (or_introl eq_refl)) as (Hb & Ha & Hx & Hs).
      assert (Lb : layout_ok n (layout_at p (pbefore x))) by (apply check_layout_ok, laid_out, Hb).
      assert (La : layout_ok n (layout_at p (pafter x))) by (apply check_layout_ok, laid_out, Ha).
      pose proof (relabelled n y _ Hy Lb Hl A st v Hst) as H1.
      pose proof (good_represents A x st v (F x (or_introl eq_refl)) H1) as H2.
      destruct (IH (fun z Hz => F z (or_intror Hz)) _ _ La Hn H2) as [H3 H4]. split; [exact H3|].
      intros [|z done] w rest E; cbn [app] in E; injection E as -> E.
      + exact H2.
      + exact (H4 done w rest E).
  Qed.

  Lemma check_all_ok m : check_all m = true -> has_all m.
  Proof. intros H d. apply partition_ok in H. destruct H as [_ H]. rewrite H. apply In_devices. Qed.

  (** The checker says yes only to plans that keep every promise. *)
  Theorem check_partial_plan_within_sound : check_partial_plan_within p limit = true -> ppromises p limit.
  Proof.
    unfold check_partial_plan_within; cbv zeta; intros H; split_bool.
    match goal with E : check_ppath _ _ _ _ = true |- _ => apply check_ppath_ok in E; [|assumption]; destruct E as [Hl F] end.
    repeat match goal with
      | E : check_mesh _ = true |- _ => apply check_mesh_ok in E
      | E : check_all _ = true |- _ => apply check_all_ok in E
      | E : check_type _ _ = true |- _ => apply check_type_ok in E
      | E : check_layout _ _ = true |- _ => apply check_layout_ok in E
      | E : same _ _ = true |- _ => apply same_eq in E
      end.
    match goal with E : layout_ok _ (psource_layout p) |- _ => rename E into Ys end.
    match goal with E : layout_ok _ (ptarget_layout p) |- _ => rename E into Yt end.
    constructor.
    - unfold ptypes_ok; tauto.
    - intros V A v st Hst. exact (proj1 (linked_runs A v (psteps p) F Yt _ st Ys Hl Hst)).
    - intros done x rest E V A v st Hst.
      exact (proj2 (linked_runs A v (psteps p) F Yt _ st Ys Hl Hst) done x rest E).
    - intros x Hx. apply good_lawful, F, Hx.
    - split; [apply bound_ok; assumption|]. intros x Hx. destruct (F x Hx) as (_ & _ & _ & B). apply bound_ok, B.
  Qed.
End Plan.

Theorem check_partial_plan_sound p : check_partial_plan p = true -> ppromises p (plarger_end p).
Proof. apply check_partial_plan_within_sound. Qed.
