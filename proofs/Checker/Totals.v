(** * Totals, layouts and boxes of summands: the lemmas behind the checker of plans of partial arrays *)

From Coq Require Import ZArith List Bool Lia Permutation.
From Redistrib.Checker Require Import Spec Check Vectors PartialSpec PartialCheck.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** The same numbers: in a sum equally often, else as a set. *)
Definition amounts (r : reduction) (l m : list Z) : Prop :=
  match r with Sum => Permutation l m | _ => forall k, In k l <-> In k m end.

Lemma amounts_refl r l : amounts r l l.
Proof. destruct r; cbn; reflexivity. Qed.

Lemma Permutation_amounts r l m : Permutation l m -> amounts r l m.
Proof.
  intros H; destruct r; cbn; [exact H|..]; intros k; split; apply Permutation_in; [|apply Permutation_sym| |apply Permutation_sym]; exact H.
Qed.

Section Algebra.
  Context {V : Type} (A : algebra V).
  Variable r : reduction.
  Notation total := (total A r).

  Lemma op_neutral_r x : op A r x (neutral A r) = x.
  Proof. rewrite op_comm. apply op_neutral. Qed.

  Lemma total_app l m : total (l ++ m) = op A r (total l) (total m).
  Proof.
    induction l as [|x l IH]; cbn [app PartialSpec.total fold_right].
    - symmetry; apply op_neutral.
    - fold (total (l ++ m)) (total l). rewrite IH. apply op_assoc.
  Qed.

  Lemma total_perm l m : Permutation l m -> total l = total m.
  Proof.
    induction 1 as [|x l m _ IH|x y l|l m k _ IH1 _ IH2]; cbn [PartialSpec.total fold_right].
    - reflexivity.
    - fold (total l) (total m). rewrite IH; reflexivity.
    - fold (total l). rewrite !op_assoc, (op_comm _ A r x y). reflexivity.
    - congruence.
  Qed.

  Lemma total_one x : total [x] = x.
  Proof. cbn. apply op_neutral_r. Qed.

  Lemma total_absorbs (f : Z -> V) k l : r <> Sum -> In k l -> op A r (f k) (total (map f l)) = total (map f l).
  Proof.
    intros Hr; induction l as [|x l IH]; intros H; [destruct H|]. cbn [map PartialSpec.total fold_right].
    fold (total (map f l)). destruct H as [->|H].
    - rewrite op_assoc, op_twice by exact Hr. reflexivity.
    - rewrite op_assoc, (op_comm _ A r (f k)), <- op_assoc, IH by exact H. reflexivity.
  Qed.

  Lemma total_absorbs_all (f : Z -> V) m l : r <> Sum -> incl m l ->
    op A r (total (map f m)) (total (map f l)) = total (map f l).
  Proof.
    intros Hr; induction m as [|k m IH]; intros H; cbn [map PartialSpec.total fold_right]; [apply op_neutral|].
    fold (total (map f m)). rewrite <- op_assoc, IH by (intros x Hx; apply H; right; exact Hx).
    apply total_absorbs; [exact Hr|apply H; left; reflexivity].
  Qed.

  Lemma total_amounts (f : Z -> V) l m : amounts r l m -> total (map f l) = total (map f m).
  Proof.
    destruct r eqn:E; cbn [amounts]; intros H.
    - rewrite <- E. apply total_perm, Permutation_map, H.
    - rewrite <- E. rewrite <- (total_absorbs_all f m l), op_comm; [|congruence|intros k; apply H].
      apply total_absorbs_all; [congruence|intros k; apply H].
    - rewrite <- E. rewrite <- (total_absorbs_all f m l), op_comm; [|congruence|intros k; apply H].
      apply total_absorbs_all; [congruence|intros k; apply H].
  Qed.

  (** A total of totals is the total of all. *)
  Lemma total_concat (f : Z -> V) (c : Z -> list Z) js :
    total (map (fun j => total (map f (c j))) js) = total (map f (concat (map c js))).
  Proof.
    induction js as [|j js IH]; [reflexivity|]. cbn [map concat]. rewrite map_app, total_app.
    cbn [PartialSpec.total fold_right]. fold (total (map f (c j))).
    change (fold_right (op A r) (neutral A r) (map (fun j => total (map f (c j))) js))
      with (total (map (fun j => total (map f (c j))) js)). rewrite IH. reflexivity.
  Qed.
End Algebra.

(** Of one summand every reduction makes the same. *)
Lemma total_any {V} (A : algebra V) r t x : total A r [x] = total A t [x].
Proof. rewrite !total_one; reflexivity. Qed.

Lemma permutes_ok l m : permutes l m = true -> Permutation l m.
Proof.
  unfold permutes; intros H; split_bool. match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E; rename E into I end.
  apply NoDup_Permutation_bis.
  - apply distinct_NoDup; assumption.
  - unfold len in *; lia.
  - intros k Hk. apply mem_In, I, Hk.
Qed.

Lemma all_of_map {A B} (f : A -> option B) (g : A -> B) l :
  (forall x, In x l -> f x = Some (g x)) -> all_of (map f l) = Some (map g l).
Proof.
  induction l as [|x l IH]; intros H; [reflexivity|]. cbn [map all_of].
  rewrite (H x (or_introl eq_refl)), IH; [reflexivity|]. intros; apply H; right; assumption.
Qed.

(** ** Boxes of summands *)

Lemma range_NoDup k : NoDup (range k).
Proof.
  unfold range. apply FinFun.Injective_map_NoDup; [intros x y; lia|apply seq_NoDup].
Qed.

Lemma same_reduction_ok r t : same_reduction r t = true -> r = t.
Proof. destruct r, t; cbn; congruence. Qed.

(** At every place of the goal each wanted summand counts once, or at least once. *)
Lemma pairwise_once (parts : list (box * Z)) k g :
  pairwise apart (map fst (filter (fun part => snd part =? k) parts)) = true ->
  forall inb : box * Z -> bool,
  (forall part, In part parts -> inb part = true -> in_intervals (fst part) g) ->
  (count_occ Z.eq_dec (map snd (filter inb parts)) k <= 1)%nat.
Proof.
  intros P inb B. induction parts as [|[bx j] parts IH]; [cbn; lia|].
  cbn [filter snd] in *. destruct (Z.eqb_spec j k) as [->|N].
  - cbn [map pairwise fst] in P. split_bool.
    assert (B' : forall part, In part parts -> inb part = true -> in_intervals (fst part) g) by (intros; apply B; [right|]; assumption).
    destruct (inb (bx, k)) eqn:E; [|apply IH; assumption].
    cbn [map snd count_occ]. destruct (Z.eq_dec k k); [|congruence].
    enough (count_occ Z.eq_dec (map snd (filter inb parts)) k = 0)%nat by lia.
    apply count_occ_not_In. intros I. apply in_map_iff in I. destruct I as ([b' j'] & Ej & I). cbn in Ej; subst j'.
    apply filter_In in I. destruct I as [I1 I2].
    match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E; specialize (E b'); rename E into H end. apply (apart_ok bx b' g).
    + apply H, in_map_iff. exists (b', k). split; [reflexivity|]. apply filter_In. split; [exact I1|cbn; apply Z.eqb_refl].
    + apply (B (bx, k)); [left; reflexivity|exact E].
    + apply (B (b', k)); [right; exact I1|exact I2].
  - assert (B' : forall part, In part parts -> inb part = true -> in_intervals (fst part) g) by (intros; apply B; [right|]; assumption).
    destruct (inb (bx, j)); [|apply IH; assumption]. cbn [map snd count_occ].
    destruct (Z.eq_dec j k); [congruence|]. apply IH; assumption.
Qed.

Lemma check_sum_ok b a wanted goal parts g inb : NoDup wanted ->
  check_sum b a wanted goal parts = true ->
  (forall part, In part parts -> length (fst part) = length goal) ->
  in_intervals goal g ->
  (forall part, In part parts -> inb part = true <-> in_intervals (fst part) g) ->
  amounts (step_reduction b a) (map snd (filter inb parts)) wanted.
Proof.
  unfold check_sum; intros ND H L G B; split_bool.
  repeat match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E end.
  assert (In1 : forall k, In k (map snd (filter inb parts)) -> In k wanted).
  { intros k I. apply in_map_iff in I. destruct I as (part & <- & I). apply filter_In in I. destruct I as [I _].
    apply mem_In. match goal with E : forall x, In x parts -> _ |- _ => apply E; exact I end. }
  assert (In2 : forall k, In k wanted -> In k (map snd (filter inb parts))).
  { intros k Hk. specialize (H k Hk). cbv zeta in H. split_bool.
    match goal with E : covered _ _ = true |- _ => destruct (covered_ok _ _ g E) as (c & Hc & Hg); [|exact G|] end.
    - intros c Hc. apply in_map_iff in Hc. destruct Hc as (part & <- & Hc). apply filter_In in Hc. apply L, Hc.
    - apply in_map_iff in Hc. destruct Hc as (part & <- & Hc). apply filter_In in Hc. destruct Hc as [Hc E].
      apply Z.eqb_eq in E. apply in_map_iff. exists part. split; [exact E|]. apply filter_In. split; [exact Hc|].
      apply B; assumption. }
  destruct (step_reduction b a) eqn:R; cbn [amounts]; [|split; auto..].
  apply NoDup_Permutation; [|exact ND|split; auto].
  apply (NoDup_count_occ Z.eq_dec). intros k. destruct (in_dec Z.eq_dec k wanted) as [Hk|Hk].
  - specialize (H k Hk). cbv zeta in H. cbn [same_reduction negb] in H. split_bool.
    apply (pairwise_once parts k g); [assumption|]. intros part I E. apply B; assumption.
  - enough (count_occ Z.eq_dec (map snd (filter inb parts)) k = 0)%nat by lia.
    apply count_occ_not_In. auto.
Qed.

Lemma map_range_one {A} (f : Z -> A) : map f (range 1) = [f 0].
Proof. reflexivity. Qed.

(** Of one summand it does not matter how it is reduced. *)
Lemma total_kinds {V} (A : algebra V) q r t (w : Z -> V) : (q =? 1) || same_reduction r t = true ->
  total A r (map w (range q)) = total A t (map w (range q)).
Proof.
  intros H; apply orb_prop in H; destruct H as [H|H].
  - apply Z.eqb_eq in H; subst q. rewrite map_range_one. apply total_any.
  - apply same_reduction_ok in H; subst t; reflexivity.
Qed.

(** ** Layouts *)

Record layout_ok (n : Z) (y : layout) : Prop := {
  layout_lengths : forall d, is_device n d = true -> length (start_of y d) = length (shape_of y);
  layout_numbers : forall d, is_device n d = true -> is_device (summands y) (summand_of y d) = true;
  layout_tiles : forall d e g, is_device n d = true -> is_device n e = true ->
    in_box (start_of y d) (shape_of y) g = true -> in_box (start_of y e) (shape_of y) g = true -> start_of y d = start_of y e;
  layout_whole : forall d k, is_device n d = true -> is_device (summands y) k = true ->
    exists e, is_device n e = true /\ summand_of y e = k /\ start_of y e = start_of y d }.

Lemma in_rows n y d : is_device n d = true -> In (start_of y d, summand_of y d) (rows n y).
Proof. intros H. apply (in_map (fun d => (start_of y d, summand_of y d))), In_devices, H. Qed.

Lemma check_layout_ok n y : check_layout n y = true -> layout_ok n y.
Proof.
  unfold check_layout; cbv zeta; intros H; split_bool. rewrite forallb_forall in H, H1, H2, H3.
  assert (L : forall d, is_device n d = true -> length (start_of y d) = length (shape_of y)).
  { intros d Hd. specialize (H3 _ (in_rows n y d Hd)). apply Z.eqb_eq in H3. unfold len in H3. cbn [fst] in H3. lia. }
  split; [exact L|..].
  - intros d Hd. exact (H2 _ (in_rows n y d Hd)).
  - intros d e g Hd He G1 G2.
    specialize (H1 _ (in_rows n y d Hd)). rewrite forallb_forall in H1. specialize (H1 _ (in_rows n y e He)). cbn [fst] in H1.
    destruct (same (start_of y d) (start_of y e)) eqn:E; [apply same_eq, E|]. exfalso.
    apply in_box_iff in G1; [|auto]. apply in_box_iff in G2; [|auto]. eapply apart_ok; eassumption.
  - intros d k Hd Hk. specialize (H _ (in_rows n y d Hd)). cbn [fst] in H. rewrite forallb_forall in H.
    specialize (H k (proj2 (In_devices _ k) Hk)). apply mem_In, in_map_iff in H. destruct H as ([o j] & <- & H).
    apply filter_In in H. destruct H as [H E]. apply in_map_iff in H. destruct H as (e & Ee & He). injection Ee as <- <-.
    exists e. split; [apply In_devices, He|split; [reflexivity|apply same_eq, E]].
Qed.

Lemma lookup_zip {X Y Z'} (f : X -> Y -> Z') l m i y : lookup (zip f l m) i = Some y ->
  exists u v, lookup l i = Some u /\ lookup m i = Some v /\ y = f u v.
Proof.
  revert m i; induction l as [|u l IH]; intros [|v m] i H; cbn [zip lookup] in *; try discriminate.
  destruct (i =? 0); [injection H as <-; eauto|apply IH, H].
Qed.

Lemma lookup_some {X} (l : list X) i : 0 <= i < len l -> exists x, lookup l i = Some x.
Proof.
  unfold len; revert i; induction l as [|x l IH]; intros i H; cbn [length lookup] in *; [lia|].
  destruct (Z.eqb_spec i 0); [eauto|]. apply IH; lia.
Qed.

Lemma plus_zeros (t l : point) : length t = length l -> plus (map (fun _ => 0) t) l = l.
Proof.
  revert l; induction t as [|x t IH]; intros [|y l] H; try discriminate; [reflexivity|].
  unfold plus in *. cbn [map zip]. rewrite IH by (cbn in H; lia). reflexivity.
Qed.

Fixpoint boxed (g : point) (bx : box) {struct bx} : bool :=
  match bx, g with
  | [], _ => true
  | i :: bx', x :: g' => (fst i <=? x) && (x <? snd i) && boxed g' bx'
  | _, [] => false
  end.

Lemma boxed_iff g bx : boxed g bx = true <-> in_intervals bx g.
Proof.
  revert g; induction bx as [|i bx IH]; intros g; cbn [boxed].
  - split; [intros _; split; [cbn; lia|intros j Hj; cbn in Hj; lia]|reflexivity].
  - destruct g as [|x g]; [split; [discriminate|intros [H _]; cbn in H; lia]|].
    rewrite !andb_true_iff, Z.leb_le, Z.ltb_lt, IH. unfold in_intervals. cbn [length]. split.
    + intros [H [H1 H2]]. split; [lia|]. intros [|j] Hj; cbn [nth]; [lia|]. apply H2; lia.
    + intros [H1 H2]. pose proof (H2 0%nat ltac:(lia)) as H0. cbn [nth] in H0. split; [lia|]. split; [lia|].
      intros j Hj. apply (H2 (S j)); lia.
Qed.

Lemma boxed_at g lo e : length lo = length e -> boxed g (box_at lo e) = in_box lo e g.
Proof.
  intros H. apply eq_iff_eq_true. rewrite boxed_iff, in_box_iff by exact H. reflexivity.
Qed.

Lemma filter_map_comm {X Y} (f : Y -> bool) (h : X -> Y) l : filter f (map h l) = map h (filter (fun x => f (h x)) l).
Proof. induction l as [|x l IH]; [reflexivity|]. cbn [map filter]. rewrite IH. destruct (f (h x)); reflexivity. Qed.

Lemma filter_filter {X} (f h : X -> bool) l : filter f (filter h l) = filter (fun x => h x && f x) l.
Proof.
  induction l as [|x l IH]; [reflexivity|]. cbn [filter]. destruct (h x); cbn [filter andb]; rewrite IH; reflexivity.
Qed.

Lemma run_NoDup splits j : NoDup (run_of splits j).
Proof. unfold run_of. apply FinFun.Injective_map_NoDup; [intros x y; lia|apply range_NoDup]. Qed.

Lemma concat_filter {X Y} (f : X -> bool) (h : X -> Y) (c : Z -> list X) js :
  concat (map (fun j => map h (filter f (c j))) js) = map h (filter f (concat (map c js))).
Proof.
  induction js as [|j js IH]; [reflexivity|]. cbn [map concat]. rewrite filter_app, map_app, IH. reflexivity.
Qed.
