(** * One step: an array held in summands before it is held in summands after it *)

From Coq Require Import ZArith List Bool Lia Arith Permutation.
From Redistrib.Checker Require Import Spec Check Vectors Steps PartialSpec PartialCheck Totals.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

Section Step.
  Variables (n : Z) (s : point) (b a : pplacement).
  Hypothesis (Hb : check_pplacement n s b = true) (Ha : check_pplacement n s a = true).

  Notation tb := (tile_of s (tiles b)).
  Notation ta := (tile_of s (tiles a)).
  Notation ob := (offset_of s (tiles b)).
  Notation oa := (offset_of s (tiles a)).
  Notation lb := (entry 0 (label b)).
  Notation la := (entry 0 (label a)).
  Notation r := (step_reduction b a).

  Lemma flat p : check_pplacement n s p = true -> check_placement n s (tiles p) = true.
  Proof. unfold check_pplacement; intros H; split_bool; assumption. Qed.
  Lemma stacked p : check_pplacement n s p = true -> check_placement n (count p :: s) (stack p) = true.
  Proof. unfold check_pplacement; intros H; split_bool; assumption. Qed.
  Lemma all_hold p d : check_pplacement n s p = true -> is_device n d = true -> is_holder n (stack p) d = true.
  Proof.
    unfold check_pplacement; intros H Hd; split_bool. apply is_holder_iff. split; [exact Hd|].
    match goal with E : forallb (has_tile _) _ = true |- _ => rewrite forallb_forall in E; apply E, In_devices, Hd end.
  Qed.
  Lemma laid_out p : check_pplacement n s p = true -> check_layout n (layout_of s p) = true.
  Proof. unfold check_pplacement; intros H; split_bool; assumption. Qed.

  Let Ltb := proj1 (placement_ok n s _ (flat b Hb)).
  Let Lta := proj1 (placement_ok n s _ (flat a Ha)).
  Let Lob := proj2 (proj2 (placement_ok n s _ (flat b Hb))).
  Let Loa := proj2 (proj2 (placement_ok n s _ (flat a Ha))).

  Lemma run_neutral_kinds : check_reduces b a = true ->
    (count b =? 1) || same_reduction (reduced_by b) r = true /\ (count a =? 1) || same_reduction r (reduced_by a) = true.
  Proof.
    unfold check_reduces, step_reduction; intros H. destruct (count b =? 1); cbn [orb] in *.
    - split; [reflexivity|]. apply orb_true_iff; right. destruct (reduced_by a); reflexivity.
    - split; [destruct (reduced_by b); reflexivity|]. exact H.
  Qed.

  (** What every step comes to: all that goes into an element comes from where that element is; what goes into the same
      summand of the same element is the same everywhere; and all of it together is all summands before. *)
  Definition sources_ok (x : paction) (d : device) (l : point) (from : list (device * point)) : Prop :=
    psupply n s b a x d l = Some from /\ forall m k, In (m, k) from ->
      is_device n m = true /\ inside tb k = true /\ plus (ob m) k = plus (oa d) l /\
      pmay_supply b x m d (la d) (plus (oa d) l).

  Definition makes (x : paction) (C : Z -> point -> list Z) : Prop :=
    (forall d l, is_device n d = true -> inside ta l = true -> exists from, sources_ok x d l from /\
       amounts r (map (fun mk => lb (fst mk)) from) (C (la d) (plus (oa d) l))) /\
    forall g, amounts r (concat (map (fun j => C j g) (range (count a)))) (range (count b)).

  Section Values.
    Context {V : Type} (A : algebra V).

    Definition combined (x : paction) (st : state V) : state V := fun d l =>
      match psupply n s b a x d l with
      | Some from =>
          match all_of (map (fun mk => st (fst mk) (snd mk)) from) with
          | Some values => Some (total A r values)
          | None => None
          end
      | None => None
      end.

    Lemma makes_represents x C v st : check_reduces b a = true -> makes x C ->
      represents A n (layout_of s b) st v -> represents A n (layout_of s a) (combined x st) v.
    Proof.
      intros R [H1 H2] (w & Hw & Hst). destruct (run_neutral_kinds R) as [R1 R2].
      exists (fun j g => total A r (map (fun k => w k g) (C j g))). cbn [layout_of shape_of start_of summands summand_of reduces] in *. split.
      - intros g. rewrite <- Hw. rewrite <- (total_kinds A _ _ _ _ R2), (total_kinds A _ _ _ _ R1).
        rewrite (total_concat A r (fun k => w k g) (fun j => C j g)). apply total_amounts, H2.
      - intros d l. unfold holding. destruct (is_device n d && inside ta l)%bool eqn:G.
        + apply andb_prop in G. destruct G as [Hd Hl].
          destruct (H1 d l Hd Hl) as (from & [E F] & M). unfold combined. rewrite E.
          rewrite (all_of_map _ (fun mk => w (lb (fst mk)) (plus (oa d) l))).
          * f_equal. rewrite <- (map_map (fun mk => lb (fst mk)) (fun k => w k (plus (oa d) l))).
            apply total_amounts, M.
          * intros [m k] I. cbn [fst snd]. destruct (F m k I) as (Hm & Hk & Hg & _).
            rewrite Hst. unfold holding. rewrite Hm, Hk, Hg. reflexivity.
        + unfold combined, psupply. rewrite G. reflexivity.
    Qed.
  End Values.

  (** ** Moves *)

  Lemma stack_tile p : check_pplacement n s p = true -> tile_of (count p :: s) (stack p) = 1 :: tile_of s (tiles p).
  Proof.
    intros H; apply stacked in H. unfold check_placement in H. cbn [stack grid all2] in H.
    unfold tile_of, quotient. cbn [stack grid zip]. split_bool. f_equal. apply Z.div_same. lia.
  Qed.

  Lemma stack_offset p d : check_pplacement n s p = true -> is_device n d = true ->
    offset_of (count p :: s) (stack p) d = entry 0 (label p) d :: offset_of s (tiles p) d.
  Proof.
    intros H Hd. unfold offset_of. rewrite stack_tile by exact H. apply stacked in H.
    unfold check_placement in H. split_bool. apply is_device_iff in Hd.
    match goal with E : len (index (stack p)) = n |- _ => destruct (lookup_some (index (stack p)) d) as [y Hy]; [lia|] end.
    unfold entry, point in *. rewrite Hy. apply lookup_zip in Hy. destruct Hy as (u & v & E1 & E2 & ->).
    rewrite E1, E2. unfold times. cbn [zip]. f_equal. lia.
  Qed.

  Lemma moves_ok y : check_moves b a = true ->
    check_action n (count b :: s) (stack b) (stack a) (stack_action b y) = true ->
    pcollective_ok n s b a (Move y) /\ makes (Move y) (fun j _ => [j]).
  Proof.
    intros M H. unfold check_moves in M. split_bool.
    assert (Ha' : check_placement n (count b :: s) (stack a) = true) by (rewrite M0; apply stacked, Ha).
    destruct (action_ok n (count b :: s) (stack b) (stack a) (stacked b Hb) Ha' _ H) as [Hc Hr].
    split; [exact Hc|]. split.
    - intros d l Hd Hl. destruct (Hr d (0 :: l) (all_hold a d Ha Hd)) as (m & kk & E & Hm' & Hk & Hg & Hs).
      { rewrite M0, (stack_tile a Ha). cbn [inside]. rewrite Hl. reflexivity. }
      pose proof (holder_device n _ m Hm') as Hm. rewrite (stack_tile b Hb) in Hk. destruct kk as [|k0 k]; [discriminate|]. cbn [inside] in Hk.
      apply andb_prop in Hk. destruct Hk as [Hk0 Hk]. apply andb_prop in Hk0. destruct Hk0 as [K1 K2].
      apply Z.leb_le in K1. apply Z.ltb_lt in K2. assert (k0 = 0) by lia. subst k0.
      rewrite (stack_offset b m Hb Hm) in Hg. rewrite M0, (stack_offset a d Ha Hd) in Hg, Hs. 
      unfold plus in Hg, Hs. cbn [zip] in Hg, Hs. fold (plus (ob m) k) (plus (oa d) l) in Hg. fold (plus (oa d) l) in Hs.
      injection Hg as Eg Hg.
      exists [(m, k)]. split.
      + split.
        * unfold psupply. rewrite Hd, Hl. cbn [andb]. rewrite E. reflexivity.
        * intros m' k' [I|[]]. injection I as <- <-. repeat split; try assumption.
          cbn [pmay_supply]. replace (la d) with (la d + 0) by lia. exact Hs.
      + cbn [map fst]. replace (lb m) with (la d) by lia. apply amounts_refl.
    - intros g. rewrite <- M0. replace (concat (map (fun j => [j]) (range (count b)))) with (range (count b)); [apply amounts_refl|].
      generalize (range (count b)); intros js; induction js as [|j js IH]; [reflexivity|]. cbn [map concat app]. rewrite <- IH. reflexivity.
  Qed.
  (** ** Reductions over groups *)

  Lemma makes_all_ok splits : makes_all b a splits = true ->
    forall g : point, amounts r (concat (map (fun j => run_of splits j) (range (count a)))) (range (count b)).
  Proof.
    unfold makes_all; intros H _; split_bool. apply same_eq in H. unfold point in *.
    change (fun j => run_of splits j) with (run_of splits). rewrite H. apply amounts_refl.
  Qed.

  Lemma reduction_ok x parts part groups : check_reduction n s b a parts part groups = true ->
    (forall d l, is_device n d = true -> inside ta l = true -> psupply n s b a x d l =
       Some (map (fun m => (m, plus (part (group_of groups d) d) l)) (group_of groups d))) ->
    (forall m d k g, (exists group, In group groups /\ In m group /\ In d group) -> pmay_supply b x m d k g) ->
    groups_ok (is_device n) groups /\ makes x (fun j _ => run_of (uniform a (len (hd [] groups))) j).
  Proof.
    unfold check_reduction; cbv zeta; intros H S M. split_bool.
    match goal with E : check_groups (range n) groups = true |- _ => rename E into G end.
    split; [exact (check_groups_ok _ _ _ (In_devices n) G)|]. split; [|apply makes_all_ok; assumption].
    intros d l Hd Hl.
    assert (Hp : partition (range n) (concat groups) = true) by (unfold check_groups in G; split_bool; auto).
    destruct (group_of_ok _ groups d Hp (proj2 (In_devices n d) Hd)) as [G1 G2]. set (grp := group_of groups d) in *.
    match goal with E : forallb (check_group _ _ _ _ _) groups = true |- _ => rewrite forallb_forall in E; specialize (E _ G1);
      unfold check_group in E; rewrite forallb_forall in E; specialize (E d G2); cbv zeta in E end.
    split_bool. rewrite forallb_forall in *. 
    eexists. split; [split; [apply S; assumption|]|].
    - fold grp. intros m k I. apply in_map_iff in I. destruct I as (m' & E & I). injection E as -> <-.
      assert (Hm : is_device n m = true) by (apply partition_ok in Hp; apply In_devices, Hp, in_concat; eauto).
      match goal with E : forall x, In x grp -> same _ _ = true |- _ => specialize (E m I); apply same_eq in E; rename E into Em end.
      match goal with E : all2 Z.leb _ _ = true |- _ => apply (all2_iff _ _ _ 0 0) in E; destruct E as [F1 F2] end.
      match goal with E : forall x, In x _ -> (0 <=? x) = true |- _ => rename E into E1 end.
      match goal with E : len _ = len s |- _ => rename E into Li end.
      set (inner := part grp d) in *. assert (Li' : length inner = length s) by (unfold len in Li; lia). clear Li. rename Li' into Li.
      pose proof (Lob m Hm) as L1. pose proof (Loa d Hd) as L2. apply inside_iff in Hl. destruct Hl as [L3 Hl].
      rewrite length_plus in F1, F2 by congruence.
      assert (Lp : length (plus inner l) = length s) by (rewrite length_plus; congruence).
      split; [exact Hm|split; [|split]].
      + apply inside_iff. split; [congruence|]. rewrite Ltb; intros i Hi. rewrite nth_plus by congruence.
        specialize (Hl i ltac:(congruence)). specialize (F2 i ltac:(congruence)).
        assert (E0 : 0 <= nth i inner 0) by (apply Z.leb_le, E1, nth_In; lia).
        rewrite nth_plus in F2 by congruence. apply Z.leb_le in F2. lia.
      + rewrite <- Em. apply point_ext.
        * rewrite !length_plus by (rewrite ?length_plus; congruence). congruence.
        * rewrite length_plus by congruence. rewrite L1. intros i Hi.
          rewrite !nth_plus by (rewrite ?length_plus; congruence). lia.
      + apply M. eauto.
    - fold grp. rewrite map_map. cbn [fst]. apply Permutation_amounts, permutes_ok. assumption.
  Qed.

  Lemma reduce_scatter_ok groups : check_paction n s b a (ReduceScatter groups) = true ->
    groups_ok (is_device n) groups /\ exists C, makes (ReduceScatter groups) C.
  Proof.
    intros H. destruct (reduction_ok (ReduceScatter groups) (fun m => m) (part_start tb ta) groups H) as [H1 H2]; [|auto|eauto].
    intros d l Hd Hl. unfold psupply. rewrite Hd, Hl. reflexivity.
  Qed.

  Lemma all_reduce_ok groups : check_paction n s b a (AllReduce groups) = true ->
    groups_ok (is_device n) groups /\ exists C, makes (AllReduce groups) C.
  Proof.
    intros H. destruct (reduction_ok (AllReduce groups) (fun _ => 1) (fun _ _ => map (fun _ => 0) tb) groups H)
      as [H1 H2]; [|auto|eauto].
    intros d l Hd Hl. unfold psupply. rewrite Hd, Hl. cbn [andb]. f_equal. apply map_ext. intros m. f_equal.
    symmetry; apply plus_zeros. apply inside_iff in Hl. destruct Hl as [Ll _]. congruence.
  Qed.

  (** ** Boxes of summands that are added up *)

  Lemma in_new_tile d l : is_device n d = true -> inside ta l = true -> in_intervals (box_at (oa d) ta) (plus (oa d) l).
  Proof.
    intros Hd Hl. pose proof (Loa d Hd) as L. apply in_box_iff; [congruence|]. unfold in_box.
    replace (minus (plus (oa d) l) (oa d)) with l; [exact Hl|]. apply inside_iff in Hl. destruct Hl as [Ll _].
    symmetry; apply point_ext; rewrite length_minus by (rewrite length_plus by congruence; congruence);
      rewrite length_plus by congruence; [congruence|].
    intros i Hi. rewrite nth_minus, nth_plus by (rewrite ?length_plus by congruence; congruence). lia.
  Qed.

  (** Of a coordinate in the tile that a device held. *)
  Lemma from_old_tile m g : is_device n m = true -> in_box (ob m) tb g = true -> length g = length s ->
    inside tb (minus g (ob m)) = true /\ plus (ob m) (minus g (ob m)) = g.
  Proof.
    intros Hm Hg Lg. split; [exact Hg|]. pose proof (Lob m Hm) as L.
    assert (Lm : length (minus g (ob m)) = length s) by (rewrite length_minus; congruence).
    apply point_ext; rewrite length_plus by congruence; [congruence|].
    intros i Hi. rewrite nth_plus, nth_minus by congruence. lia.
  Qed.

  Lemma part_travel_ok h : check_part_travel n s b a h = true ->
    is_device n (src h) = true /\ is_device n (dst h) = true /\
    length (corner h) = length s /\ length (extent h) = length s /\
    (forall g, in_box (corner h) (extent h) g = true -> in_box (ob (src h)) tb g = true).
  Proof.
    unfold check_part_travel, share_box; intros H.
    destruct (is_device n (src h)) eqn:Hs; [|discriminate].
    destruct (is_device n (dst h)) eqn:Hd; [|discriminate]. cbv beta iota in H. split_bool.
    assert (Lh : length (corner h) = length s) by (unfold len in *; lia).
    assert (Le : length (extent h) = length s) by (unfold len in *; lia).
    do 4 (split; [auto|]). intros g Hg. apply in_box_iff in Hg; [|congruence].
    apply in_box_iff; [rewrite Lob by assumption; congruence|]. eapply within_ok; eassumption.
  Qed.

  Lemma rounds_ok shares : forallb (fun h => check_round n shares (round h)) shares = true ->
    forall k, one_way n (map (fun h => (src h, dst h)) (in_round k shares)).
  Proof.
    intros H k. rewrite forallb_forall in H. destruct (in_dec Z.eq_dec k (map round shares)) as [I|I].
    - apply in_map_iff in I. destruct I as (h & <- & Hh). apply check_round_ok, H, Hh.
    - rewrite in_round_other; [repeat split; try constructor; contradiction|]. intros (h & Hh & E).
      apply I, in_map_iff; eauto.
  Qed.

  Lemma reduce_exchange_ok how shares splits : check_paction n s b a (ReduceExchange how shares splits) = true ->
    pcollective_ok n s b a (ReduceExchange how shares splits) /\ exists C, makes (ReduceExchange how shares splits) C.
  Proof.
    cbn [check_paction]. unfold check_reduce_exchange; intros H; split_bool. split.
    { cbn [pcollective_ok]. apply rounds_ok. assumption. }
    exists (fun j _ => run_of splits j). split; [|apply makes_all_ok; assumption].
    intros d l Hd Hl. set (g := plus (oa d) l). pose proof (Loa d Hd) as La. pose proof (Lob d Hd) as Lb.
    assert (Lg : length g = length s).
    { unfold g. apply inside_iff in Hl. destruct Hl as [Ll _]. rewrite length_plus; congruence. }
    match goal with E : forallb (check_part_travel _ _ _ _) shares = true |- _ => rewrite forallb_forall in E; rename E into T end.
    match goal with E : forallb (check_arriving _ _ _ _ _) _ = true |- _ => rewrite forallb_forall in E;
      specialize (E d (proj2 (In_devices n d) Hd)); rename E into Ar end.
    unfold psupply. eexists. split.
    - split; [unfold psupply; rewrite Hd, Hl; reflexivity|]. intros m k I. fold g. apply in_app_or in I. destruct I as [I|I].
      + destruct (existsb _ _ && in_box _ _ _)%bool eqn:E; [|destruct I]. apply andb_prop in E. destruct E as [_ E].
        destruct I as [I|[]]. injection I as <- <-. destruct (from_old_tile d g Hd E Lg) as [Q1 Q2].
        repeat split; try assumption. left; reflexivity.
      + apply in_map_iff in I. destruct I as (h & E & I). injection E as <- <-. apply filter_In in I. destruct I as [I E].
        apply andb_prop in E. destruct E as [E1 E2]. apply Z.eqb_eq in E1. fold g in E2.
        destruct (part_travel_ok h (T h I)) as (Hs & _ & _ & _ & Hin).
        destruct (from_old_tile (src h) g Hs (Hin g E2) Lg) as [Q1 Q2]. repeat split; try assumption. right; exists h; auto.
    - fold g. unfold check_arriving in Ar. cbv zeta in Ar.
      apply (check_sum_ok b a _ _ _ g (fun part => boxed g (fst part)) (run_NoDup _ _)) in Ar.
      + rewrite filter_app, map_app in Ar. rewrite map_app.
        rewrite filter_map_comm, map_map in Ar. cbn [fst snd] in Ar. rewrite map_map. cbn [fst].
        unfold to_device in Ar. rewrite filter_filter in Ar.
        replace (filter (fun h => (dst h =? d) && in_box (corner h) (extent h) g)%bool shares)
          with (filter (fun h => (dst h =? d) && boxed g (share_box h))%bool shares).
        2: { apply filter_ext_in. intros h Hh. destruct (part_travel_ok h (T h Hh)) as (_ & _ & L1 & L2 & _).
             unfold share_box. rewrite boxed_at by congruence. reflexivity. }
        match type of Ar with amounts _ (?u ++ _) _ => match goal with |- amounts _ (?v ++ _) _ => replace v with u; [exact Ar|] end end.
        fold (mem (lb d) (run_of splits (la d))). destruct (mem _ _); [|reflexivity]. cbn [andb filter map fst].
        rewrite boxed_at by congruence. destruct (in_box _ _ _); reflexivity.
      + intros part I. rewrite length_box_at by congruence. apply in_app_or in I. destruct I as [I|I].
        * destruct (mem _ _); [|destruct I]. destruct I as [<-|[]]. cbn [fst]. rewrite length_box_at; congruence.
        * apply in_map_iff in I. destruct I as (h & <- & I). apply filter_In in I. destruct I as [I _].
          destruct (part_travel_ok h (T h I)) as (_ & _ & L1 & L2 & _). cbn [fst]. unfold share_box.
          rewrite length_box_at; congruence.
      + apply in_new_tile; assumption.
      + intros part _. apply boxed_iff.
  Qed.

  (** ** Summands made of tiles *)

  (** Where no tile is, all summands go into the first. *)
  Lemma nowhere : 1 <= count a ->
    concat (map (fun j => if j =? 0 then range (count b) else []) (range (count a))) = range (count b).
  Proof.
    intros H. unfold range at 2. destruct (Z.to_nat (count a)) as [|q] eqn:E; [lia|].
    cbn [seq map concat Z.of_nat Z.eqb]. rewrite <- (app_nil_r (range (count b))) at 2. f_equal.
    clear. rewrite map_map. assert (G : forall k0, concat (map (fun x => if Z.of_nat x =? 0 then range (count b) else []) (seq (S k0) q)) = []).
    { induction q as [|q IH]; intros k0; [reflexivity|]. cbn [seq map concat].
      destruct (Z.eqb_spec (Z.of_nat (S k0)) 0); [lia|]. apply IH. }
    apply G.
  Qed.

  Lemma holder_same d e j : oa d = oa e -> holder n s a d j = holder n s a e j.
  Proof. unfold holder, same_tile. intros ->. reflexivity. Qed.

  Lemma apart_tiles d e : is_device n d = true -> is_device n e = true ->
    forall g, in_box (oa d) ta g = true -> in_box (oa e) ta g = true -> oa d = oa e.
  Proof. intros Hd He g. apply (layout_tiles _ _ (check_layout_ok _ _ (laid_out a Ha)) d e g Hd He). Qed.

  Lemma same_content_ok keeps d e : same_content s b keeps d e = true -> content s b keeps d = content s b keeps e.
  Proof.
    unfold same_content, content; intros H; split_bool.
    match goal with E : Bool.eqb _ _ = true |- _ => apply Bool.eqb_prop in E; rewrite E in * end.
    destruct (mem e keeps); [|reflexivity]. cbn [negb] in *. split_bool.
    match goal with E : same _ _ = true |- _ => apply same_eq in E; rewrite E end. congruence.
  Qed.

  Lemma unreduce_ok keeps : check_paction n s b a (Unreduce keeps) = true -> exists C, makes (Unreduce keeps) C.
  Proof.
    cbn [check_paction]. unfold check_unreduce; intros H; split_bool.
    repeat match goal with E : forallb _ (range n) = true |- _ => rewrite forallb_forall in E end.
    match goal with E : forall d, In d _ -> match holder _ _ _ _ _ with _ => _ end = true |- _ => rename E into Hh end.
    match goal with E : forall d, In d _ -> check_sum _ _ _ _ _ = true |- _ => rename E into Hs end.
    assert (Qa : 1 <= count a).
    { pose proof (stacked a Ha) as P. unfold check_placement in P. cbn [stack grid all2] in P. split_bool. lia. }
    exists (fun j g => match find (fun d => in_box (oa d) ta g) (range n) with
      | Some d0 => map snd (filter (fun part => boxed g (fst part)) (made_of n s b a keeps d0 j))
      | None => if j =? 0 then range (count b) else [] end). split.
    - intros d l Hd Hl. set (g := plus (oa d) l). pose proof (Loa d Hd) as La. pose proof (Lob d Hd) as Lb.
      assert (Lg : length g = length s).
      { unfold g. apply inside_iff in Hl. destruct Hl as [Ll _]. rewrite length_plus; congruence. }
      assert (Gd : in_box (oa d) ta g = true) by (apply in_box_iff; [congruence|apply in_new_tile; assumption]).
      exists (if existsb (Z.eqb d) keeps && in_box (ob d) tb g then [(d, minus g (ob d))] else []). split.
      + split; [unfold psupply; rewrite Hd, Hl; reflexivity|]. intros m k I. fold g.
        destruct (existsb _ _ && in_box _ _ _)%bool eqn:E; [|destruct I]. apply andb_prop in E. destruct E as [E0 E].
        destruct I as [I|[]]. injection I as <- <-. destruct (from_old_tile d g Hd E Lg) as [Q1 Q2].
        repeat split; try assumption. apply mem_In, E0.
      + destruct (find (fun d => in_box (oa d) ta g) (range n)) as [d0|] eqn:F.
        2: { exfalso. apply find_none with (x := d) in F; [congruence|apply In_devices, Hd]. }
        apply find_some in F. destruct F as [F1 F2]. apply In_devices in F1.
        pose proof (apart_tiles d0 d F1 Hd g F2 Gd) as Eo. unfold made_of. rewrite (holder_same d0 d) by exact Eo.
        specialize (Hh d (proj2 (In_devices n d) Hd)). destruct (holder n s a d (la d)) as [e|]; [|discriminate].
        rewrite <- (same_content_ok _ _ _ Hh). unfold content. fold (mem d keeps). destruct (mem d keeps); cbn [andb].
        * cbn [filter fst]. rewrite boxed_at by congruence. destruct (in_box (ob d) tb g); apply amounts_refl.
        * apply amounts_refl.
    - intros g. destruct (find (fun d => in_box (oa d) ta g) (range n)) as [d0|] eqn:F.
      + apply find_some in F. destruct F as [F1 F2]. rewrite concat_filter. specialize (Hs d0 F1).
        apply In_devices in F1. pose proof (Loa d0 F1) as La.
        apply (check_sum_ok b a _ _ _ g (fun part => boxed g (fst part)) (range_NoDup _)) in Hs.
        * exact Hs.
        * intros part I. rewrite length_box_at by congruence. apply in_concat in I. destruct I as (ps & I1 & I2).
          apply in_map_iff in I1. destruct I1 as (j & <- & _). unfold made_of in I2.
          destruct (holder n s a d0 j) as [e|] eqn:Eh; [|destruct I2]. apply find_some in Eh. destruct Eh as [Eh _].
          apply In_devices in Eh. unfold content in I2. destruct (mem e keeps); [|destruct I2]. destruct I2 as [<-|[]].
          cbn [fst]. pose proof (Lob e Eh). rewrite length_box_at; congruence.
        * apply in_box_iff; [congruence|exact F2].
        * intros part _. apply boxed_iff.
      + rewrite (nowhere Qa). apply amounts_refl.
  Qed.

  Lemma paction_ok x : check_paction n s b a x = true ->
    check_reduces b a = true /\ pcollective_ok n s b a x /\ exists C, makes x C.
  Proof.
    intros H. destruct x as [y|groups|groups|how shares splits|keeps].
    - cbn [check_paction] in H. split_bool. destruct (moves_ok y) as [H1 H2]; [assumption..|].
      split; [|split; [exact H1|eauto]]. unfold check_reduces. unfold check_moves in *. split_bool.
      match goal with E : (_ || _)%bool = true |- _ => apply orb_prop in E; destruct E as [E|E]; rewrite E end; [reflexivity|].
      rewrite !orb_true_r. reflexivity.
    - destruct (reduce_scatter_ok groups H) as [H1 H2]. unfold check_paction, check_reduction in H.
      cbv zeta in H. split_bool. auto.
    - destruct (all_reduce_ok groups H) as [H1 H2]. unfold check_paction, check_reduction in H.
      cbv zeta in H. split_bool. auto.
    - destruct (reduce_exchange_ok how shares splits H) as [H1 H2]. unfold check_paction, check_reduce_exchange in H.
      split_bool. auto.
    - pose proof (unreduce_ok keeps H) as H2. unfold check_paction, check_unreduce in H. split_bool.
      cbn [pcollective_ok]. auto.
  Qed.
End Step.
