(** * One step: what the checker accepts takes every element from where it is, from one who holds it *)

From Coq Require Import ZArith List Bool Lia Arith.
From Redistrib.Checker Require Import Spec Check Vectors.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

Lemma check_groups_ok who all groups : (forall d, In d all <-> who d = true) -> check_groups all groups = true ->
  groups_ok who groups.
Proof.
  intros W; unfold check_groups; intros H; split_bool. apply partition_ok in H0. destruct H0 as [H1 H2].
  split; [exact H1|split; [intros d; rewrite H2; apply W|]]. clear H1 H2.
  destruct groups as [|g0 rest]; [intros g h []|]. rewrite forallb_forall in H.
  assert (E : forall h, In h (g0 :: rest) -> length h = length g0).
  { intros h [->|Hh]; [reflexivity|]. specialize (H h Hh). apply Z.eqb_eq in H. unfold len in H. lia. }
  intros g h Hg Hh. rewrite (E g Hg), (E h Hh). reflexivity.
Qed.

Section Step.
  Variables (n : Z) (s : point) (b a : placement).
  Hypothesis (Hb : check_placement n s b = true) (Ha : check_placement n s a = true).

  Notation tb := (tile_of s b).
  Notation ta := (tile_of s a).
  Notation ob := (offset_of s b).
  Notation oa := (offset_of s a).

  Lemma placement_ok p : check_placement n s p = true ->
    length (tile_of s p) = length s /\
    (forall i, (i < length s)%nat -> 1 <= nth i (tile_of s p) 0) /\
    (forall d, is_device n d = true -> length (offset_of s p d) = length s).
  Proof.
    unfold check_placement; intros H; split_bool.
    match goal with E : all2 _ s _ = true |- _ => apply (all2_iff _ _ _ 0 0) in E; destruct E as [El E1] end.
    assert (Lt : length (tile_of s p) = length s) by (unfold tile_of, quotient; apply length_zip; exact El).
    split; [exact Lt|split].
    - intros i Hi. specialize (E1 i Hi). unfold tile_of, quotient; rewrite nth_zip by assumption. split_bool.
      apply Z.div_le_lower_bound; [lia|]. rewrite Z.mul_1_r.
      apply Z.divide_pos_le; [lia|]. apply Z.mod_divide; lia.
    - intros d Hd. apply is_device_iff in Hd.
      assert (E : exists r, lookup (index p) d = Some r).
      { match goal with E : len (index p) = n |- _ => revert E end. unfold len; clear -Hd. revert n d Hd.
        generalize (index p); intros l; induction l as [|r l IH]; intros n d Hd E; cbn [length lookup] in *; [lia|].
        destruct (d =? 0) eqn:D; [eauto|]. apply Z.eqb_neq in D. apply (IH (n - 1)); lia. }
      destruct E as [r E]. unfold offset_of, entry, times, point in *. rewrite E. apply lookup_In in E.
      rewrite forallb_forall in H. apply H in E. rewrite length_zip; destruct (inside (grid p) r) eqn:I.
      + apply inside_iff in I. destruct I as [I _]. congruence.
      + apply same_eq in E. rewrite E, map_length. reflexivity.
      + apply inside_iff in I. destruct I as [I _]. congruence.
      + apply same_eq in E. rewrite E, map_length. congruence.
  Qed.

  Let Ltb := proj1 (placement_ok b Hb).
  Let Lta := proj1 (placement_ok a Ha).
  Let Ptb := proj1 (proj2 (placement_ok b Hb)).
  Let Pta := proj1 (proj2 (placement_ok a Ha)).
  Let Lob := proj2 (proj2 (placement_ok b Hb)).
  Let Loa := proj2 (proj2 (placement_ok a Ha)).

  (** The heart of it: the element comes from within the tile of one who may supply it, and from the same global
      coordinate. *)
  Definition routed (x : action) : Prop := forall d l, is_holder n a d = true -> inside ta l = true ->
    exists m k, supply n s b a x d l = Some (m, k) /\
      is_holder n b m = true /\ inside tb k = true /\ plus (ob m) k = plus (oa d) l /\
      may_supply x m d (plus (oa d) l).

  Lemma supply_guard d l : is_holder n a d = true -> inside ta l = true ->
    (is_holder n a d && inside ta l)%bool = true.
  Proof. intros -> ->; reflexivity. Qed.

  Lemma holder_device p d : is_holder n p d = true -> is_device n d = true.
  Proof. intros H; apply is_holder_iff in H; apply H. Qed.

  Lemma slice_ok : check_slice n s b a = true -> routed DynSlice.
  Proof.
    unfold check_slice; intros H d l Ha' Hl; split_bool.
    pose proof (holder_device a d Ha') as Hd. pose proof (proj1 (is_holder_iff _ _ _) Ha') as [_ Ta].
    rewrite forallb_forall in H. specialize (H d (proj2 (In_devices n d) Hd)). rewrite Ta in H. cbn [negb] in H. split_bool.
    assert (Hb' : is_holder n b d = true) by (apply is_holder_iff; auto).
    pose proof (Lob d Hd) as E1. pose proof (Loa d Hd) as E2.
    unfold supply. rewrite supply_guard by assumption.
    apply inside_iff in Hl. destruct Hl as [Ll Hl].
    exists d, (plus l (minus (oa d) (ob d))). split; [reflexivity|]. split; [exact Hb'|].
    unfold within in H. apply (all2_iff _ _ _ (0, 0) (0, 0)) in H. destruct H as [_ H].
    rewrite length_box_at in H by congruence.
    assert (Lm : length (minus (oa d) (ob d)) = length s) by (rewrite length_minus; congruence).
    assert (Lk : length (plus l (minus (oa d) (ob d))) = length s) by (rewrite length_plus; congruence).
    assert (N : forall i, (i < length s)%nat ->
      nth i (plus l (minus (oa d) (ob d))) 0 = nth i l 0 + (nth i (oa d) 0 - nth i (ob d) 0)).
    { intros i Hi. rewrite nth_plus by congruence. rewrite nth_minus by congruence. lia. }
    split; [|split; [|reflexivity]].
    - apply inside_iff. split; [congruence|]. rewrite Ltb. intros i Hi. rewrite N by exact Hi.
      specialize (H i ltac:(congruence)). rewrite !nth_box_at in H by congruence. cbn [fst snd] in H.
      specialize (Hl i ltac:(congruence)). split_bool. lia.
    - apply point_ext; rewrite length_plus by congruence.
      + rewrite length_plus; congruence.
      + rewrite E1; intros i Hi. rewrite nth_plus by congruence. rewrite N by exact Hi.
        rewrite nth_plus by congruence. lia.
  Qed.

  Lemma group_of_ok all groups d : partition all (concat groups) = true -> In d all ->
    In (group_of groups d) groups /\ In d (group_of groups d).
  Proof.
    intros H Hd; apply partition_ok in H; destruct H as [_ H]. apply H in Hd. apply in_concat in Hd.
    destruct Hd as (g & Hg & Hdg). unfold group_of. destruct (find (existsb (Z.eqb d)) groups) as [h|] eqn:F.
    - apply find_some in F; destruct F as [F1 F2]. split; [exact F1|]. apply mem_In, F2.
    - exfalso. apply find_none with (x := g) in F; [|exact Hg]. apply mem_In in Hdg.
      unfold mem in Hdg. congruence.
  Qed.

  (** Chunks that arrive in order make up the new tile. *)
  Lemma members_ok chunk groups : length chunk = length s -> (forall i, (i < length s)%nat -> 1 <= nth i chunk 0) ->
    check_members n s b a chunk groups = true ->
    groups_ok (is_holder n b) groups /\ (forall d, is_device n d = true -> has_tile a d = has_tile b d) /\
    forall d l, is_holder n a d = true -> inside ta l = true ->
    exists m k, from_member (group_of groups d) ta chunk l = Some (m, k) /\
      In (group_of groups d) groups /\ In d (group_of groups d) /\ In m (group_of groups d) /\
      is_holder n b m = true /\ inside chunk k = true /\
      length (beyond (ob m) (oa d)) = length s /\
      (forall i, (i < length s)%nat -> 0 <= nth i (beyond (ob m) (oa d)) 0 <= nth i tb 0 - nth i chunk 0) /\
      inside tb (plus k (beyond (ob m) (oa d))) = true /\
      plus (ob m) (plus k (beyond (ob m) (oa d))) = plus (oa d) l.
  Proof.
    intros Lc Pc. unfold check_members; intros H; split_bool.
    assert (Hp : partition (filter (has_tile b) (range n)) (concat groups) = true)
      by (unfold check_groups in *; split_bool; auto).
    split; [eapply check_groups_ok; [apply In_holders|eassumption]|].
    assert (Hs : forall d, is_device n d = true -> has_tile a d = has_tile b d).
    { match goal with E : forallb _ (range n) = true |- _ => rewrite forallb_forall in E; rename E into Hs end.
      intros d Hd. apply Bool.eqb_prop, Hs, In_devices, Hd. }
    split; [exact Hs|]. intros d l Ha' Hl. pose proof (holder_device a d Ha') as Hd.
    assert (Hb' : is_holder n b d = true).
    { apply is_holder_iff. split; [exact Hd|]. rewrite <- Hs by exact Hd. apply is_holder_iff in Ha'; apply Ha'. }
    clear Hs. destruct (group_of_ok _ groups d Hp (proj2 (In_holders n b d) Hb')) as [G1 G2].
    rewrite forallb_forall in H. specialize (H _ G1). rewrite forallb_forall in H. specialize (H d G2).
    apply inside_iff in Hl. destruct Hl as [Ll Hl]. rewrite Lta in Ll, Hl.
    match goal with E : divides chunk ta = true |- _ => apply divides_iff in E; destruct E as [_ Dv] end.
    rewrite Lc in Dv.
    assert (Lf : length (quotient ta chunk) = length s) by (rewrite length_quotient; congruence).
    assert (Lq : length (quotient l chunk) = length s) by (rewrite length_quotient; congruence).
    assert (Lr : length (remainder l chunk) = length s) by (rewrite length_remainder; congruence).
    assert (Hq : inside (quotient ta chunk) (quotient l chunk) = true).
    { apply inside_iff. split; [congruence|]. rewrite Lf. intros i Hi.
      rewrite !nth_quotient by congruence.
      specialize (Hl i Hi). specialize (Pc i Hi). specialize (Dv i Hi). split.
      - apply Z.div_pos; lia.
      - apply Z.div_lt_upper_bound; [lia|].
        rewrite <- (proj2 (Z.div_exact (nth i ta 0) (nth i chunk 0) ltac:(lia)) Dv). lia. }
    destruct (all2_lookup _ _ _ _ _ H (lookup_cells _ _ Hq)) as (m & E & Hs).
    assert (Hm' : is_holder n b m = true).
    { apply partition_ok in Hp; apply In_holders, Hp. apply in_concat. eauto using lookup_In. }
    pose proof (holder_device b m Hm') as Hm.
    exists m, (remainder l chunk). unfold from_member. rewrite E.
    split; [reflexivity|]. split; [exact G1|]. split; [exact G2|]. split; [eauto using lookup_In|].
    split; [exact Hm'|].
    unfold check_share in Hs. split_bool. apply same_eq in Hs.
    pose proof (Lob m Hm) as E1. pose proof (Loa d Hd) as E2.
    assert (Lb : length (beyond (ob m) (oa d)) = length s) by (rewrite length_beyond; congruence).
    assert (Lp : length (plus (remainder l chunk) (beyond (ob m) (oa d))) = length s)
      by (rewrite length_plus; congruence).
    assert (Nb : forall i, (i < length s)%nat -> 0 <= nth i (beyond (ob m) (oa d)) 0).
    { intros i Hi. rewrite nth_beyond by congruence. lia. }
    assert (Nr : forall i, (i < length s)%nat -> 0 <= nth i (remainder l chunk) 0 < nth i chunk 0).
    { intros i Hi. rewrite nth_remainder by congruence. specialize (Pc i Hi).
      apply Z.mod_pos_bound; lia. }
    assert (Nt : forall i, (i < length s)%nat -> nth i (beyond (ob m) (oa d)) 0 + nth i chunk 0 <= nth i tb 0).
    { match goal with E : all2 Z.leb _ _ = true |- _ => apply (all2_iff _ _ _ 0 0) in E; destruct E as [_ Hin] end.
      assert (Ls : length (plus (beyond (ob m) (oa d)) chunk) = length s)
        by (rewrite length_plus; congruence).
      rewrite Ls in Hin. intros i Hi. specialize (Hin i Hi). apply Z.leb_le in Hin.
      rewrite nth_plus in Hin by congruence. exact Hin. }
    split; [|split; [exact Lb|split; [|split]]].
    - apply inside_iff. split; [congruence|]. rewrite Lc; exact Nr.
    - intros i Hi. specialize (Nb i Hi). specialize (Nt i Hi). lia.
    - apply inside_iff. split; [congruence|]. rewrite Ltb; intros i Hi.
      rewrite nth_plus by congruence.
      specialize (Nr i Hi). specialize (Nb i Hi). specialize (Nt i Hi). lia.
    - assert (N : forall i, (i < length s)%nat ->
        nth i (ob m) 0 + nth i (beyond (ob m) (oa d)) 0 = nth i (oa d) 0 + nth i (quotient l chunk) 0 * nth i chunk 0).
      { intros i Hi. apply (f_equal (fun z => nth i z 0)) in Hs. 
        rewrite nth_plus in Hs by congruence. rewrite Hs.
        assert (Lt : length (times (quotient l chunk) chunk) = length s) by (rewrite length_times; congruence).
        rewrite nth_plus by congruence. rewrite nth_times by congruence. reflexivity. }
      assert (L1 : length (plus (ob m) (plus (remainder l chunk) (beyond (ob m) (oa d)))) = length s)
        by (rewrite length_plus; congruence).
      apply point_ext.
      + rewrite L1. rewrite length_plus; congruence.
      + rewrite L1; intros i Hi. rewrite nth_plus by congruence.
        rewrite nth_plus by congruence. rewrite nth_plus by congruence.
        specialize (N i Hi). specialize (Pc i Hi).
        rewrite nth_remainder by congruence.
        rewrite nth_quotient in N by congruence.
        pose proof (Z.div_mod (nth i l 0) (nth i chunk 0) ltac:(lia)). lia.
  Qed.

  Lemma Lsmaller : length (smaller tb ta) = length s.
  Proof. rewrite length_smaller; congruence. Qed.

  Lemma Psmaller : forall i, (i < length s)%nat -> 1 <= nth i (smaller tb ta) 0.
  Proof.
    intros i Hi. rewrite nth_smaller by congruence.
    specialize (Ptb i Hi). specialize (Pta i Hi). lia.
  Qed.

  Lemma alltoall_ok groups : check_members n s b a (smaller tb ta) groups = true ->
    groups_ok (is_holder n b) groups /\ routed (AllToAll groups).
  Proof.
    intros H. destruct (members_ok _ _ Lsmaller Psmaller H) as (H1 & _ & H2). split; [exact H1|].
    intros d l Hd Hl. destruct (H2 d l Hd Hl) as (m & k & E & G1 & G2 & G3 & Hm & _ & _ & _ & Hk & Hg).
    unfold supply. rewrite supply_guard, E by assumption.
    eexists _, _. split; [reflexivity|]. repeat split; try assumption. simpl; eauto.
  Qed.

  Lemma allgather_ok groups : check_members n s b a tb groups = true ->
    groups_ok (is_holder n b) groups /\ routed (AllGather groups).
  Proof.
    intros H. destruct (members_ok _ _ Ltb Ptb H) as (H1 & _ & H2). split; [exact H1|].
    intros d l Hd Hl. destruct (H2 d l Hd Hl) as (m & k & E & G1 & G2 & G3 & Hm & Hk & Lb & Nb & _ & Hg).
    unfold supply. rewrite supply_guard, E by assumption.
    eexists _, _. split; [reflexivity|]. split; [exact Hm|]. split; [exact Hk|]. split; [|simpl; eauto].
    rewrite <- Hg. f_equal.
    apply inside_iff in Hk. destruct Hk as [Lk _].
    symmetry; apply point_ext; rewrite length_plus by congruence; [reflexivity|].
    intros i Hi. rewrite nth_plus by congruence. specialize (Nb i ltac:(congruence)). lia.
  Qed.

  Lemma one_way_ok pairs : check_one_way n pairs = true -> one_way n pairs.
  Proof.
    unfold check_one_way; intros H; split_bool. split; [|split]; try (apply distinct_NoDup; assumption).
    intros m d Hmd. match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E;
      specialize (E _ Hmd); cbn [fst snd] in E end. split_bool.
    split; [assumption|split; [assumption|]]. intros ->. rewrite Z.eqb_refl in *. discriminate.
  Qed.

  Lemma senders_ok p pairs : forallb (fun q => has_tile p (fst q)) pairs = true ->
    forall m d : device, In (m, d) pairs -> has_tile p m = true.
  Proof. rewrite forallb_forall. intros H m d I. exact (H _ I). Qed.

  Lemma permute_ok pairs : check_permute n s b a pairs = true ->
    collective_ok n s b a (AllPermute pairs) /\ routed (AllPermute pairs).
  Proof.
    unfold check_permute; intros H; split_bool. assert (O : one_way n pairs) by (apply one_way_ok; assumption).
    match goal with E : forallb (fun p => has_tile b (fst p)) pairs = true |- _ => rename E into S; pose proof (senders_ok b pairs S) as Sd end.
    split; [split; assumption|]. intros d l Ha' Hl. pose proof (holder_device a d Ha') as Hd.
    match goal with E : same ta tb = true |- _ => apply same_eq in E; rename E into Et end.
    rewrite forallb_forall in H. specialize (H d (proj2 (In_devices n d) Hd)). cbv zeta in H. split_bool.
    match goal with E : Bool.eqb _ _ = true |- _ => apply Bool.eqb_prop in E; rename E into Em end.
    apply is_holder_iff in Ha' as Ta. destruct Ta as [_ Ta]. rewrite Ta in Em. apply same_eq in H.
    unfold supply. rewrite supply_guard by assumption.
    destruct (find (fun p => snd p =? d) pairs) as [[m e]|] eqn:F; eexists _, l; (split; [reflexivity|]).
    - apply find_some in F; destruct F as [F1 F2]. cbn [snd] in F2. apply Z.eqb_eq in F2; subst e.
      destruct O as (_ & _ & O). destruct (O _ _ F1) as (Hm & _).
      split; [apply is_holder_iff; auto|split; [congruence|split; [congruence|]]]. left; exact F1.
    - split; [apply is_holder_iff; auto|split; [congruence|split; [congruence|]]]. right; split; [reflexivity|].
      intros I. apply in_map_iff in I. destruct I as (q & <- & I). apply find_none with (x := q) in F; [|exact I].
      rewrite Z.eqb_refl in F; discriminate.
  Qed.

  (** Of an exchange. *)
  Lemma travel_ok h : check_travel n s b a h = true ->
    is_holder n b (src h) = true /\ is_holder n a (dst h) = true /\
    length (corner h) = length s /\ length (extent h) = length s /\
    (forall g, in_box (corner h) (extent h) g = true ->
       in_box (ob (src h)) tb g = true /\ in_box (oa (dst h)) ta g = true /\ in_box (ob (dst h)) tb g = false).
  Proof.
    unfold check_travel, share_box; intros H.
    destruct (is_holder n b (src h)) eqn:Hs'; [|discriminate].
    destruct (is_holder n a (dst h)) eqn:Hd'; [|discriminate]. cbv beta iota in H. split_bool.
    pose proof (holder_device b _ Hs') as Hs. pose proof (holder_device a _ Hd') as Hd.
    assert (Lh : length (corner h) = length s) by (unfold len in *; lia).
    assert (Le : length (extent h) = length s) by (unfold len in *; lia).
    do 4 (split; [auto|]). intros g Hg. apply in_box_iff in Hg; [|congruence].
    split; [|split].
    - apply in_box_iff; [rewrite Lob by assumption; congruence|]. eapply within_ok; eassumption.
    - apply in_box_iff; [rewrite Loa by assumption; congruence|]. eapply within_ok; eassumption.
    - destruct (in_box (ob (dst h)) tb g) eqn:E; [|reflexivity]. exfalso.
      apply in_box_iff in E; [|rewrite Lob by assumption; congruence]. eapply apart_ok; eassumption.
  Qed.

  Lemma arrivals_apart shares : (forall h, In h shares -> check_travel n s b a h = true) ->
    (forall d, is_device n d = true -> pairwise apart (map share_box (to_device d shares)) = true) ->
    ForallOrdPairs (fun h k => dst h = dst k -> forall g,
      in_box (corner h) (extent h) g = true -> in_box (corner k) (extent k) g = false) shares.
  Proof.
    induction shares as [|h r IH]; intros T P; constructor.
    - apply Forall_forall. intros k Hk E g Hg.
      destruct (travel_ok h (T h (or_introl eq_refl))) as (_ & Dh & L1 & L2 & _).
      destruct (travel_ok k (T k (or_intror Hk))) as (_ & _ & L3 & L4 & _).
      specialize (P _ (holder_device a _ Dh)). unfold to_device in P. cbn [filter] in P. rewrite Z.eqb_refl in P.
      cbn [map pairwise] in P. split_bool. rewrite forallb_forall in P0.
      destruct (in_box (corner k) (extent k) g) eqn:F; [exfalso|reflexivity].
      apply in_box_iff in Hg; [|congruence]. apply in_box_iff in F; [|congruence].
      apply (apart_ok (share_box h) (share_box k) g); [|exact Hg|exact F].
      apply P0, (in_map share_box), filter_In. split; [exact Hk|].
      apply Z.eqb_eq; congruence.
    - apply IH; [intros k Hk; apply T; right; exact Hk|]. intros d Hd. specialize (P d Hd).
      unfold to_device in *. cbn [filter] in P. destruct (dst h =? d); [|exact P].
      cbn [map pairwise] in P. split_bool. exact P.
  Qed.

  Lemma in_round_other shares r : ~ (exists h, In h shares /\ round h = r) -> in_round r shares = [].
  Proof.
    intros H; unfold in_round. destruct (filter _ shares) as [|h t] eqn:F; [reflexivity|].
    assert (I : In h (filter (fun h => round h =? r) shares)) by (rewrite F; left; reflexivity).
    apply filter_In in I. destruct I as [I1 I2]. apply Z.eqb_eq in I2. exfalso; eauto.
  Qed.

  Lemma check_round_ok shares r : check_round n shares r = true ->
    one_way n (map (fun h => (src h, dst h)) (in_round r shares)).
  Proof. apply one_way_ok. Qed.

  Lemma exchange_ok how shares : check_exchange n s b a shares = true ->
    shares_ok n s b a shares /\ routed (Exchange how shares).
  Proof.
    unfold check_exchange; intros H; split_bool.
    repeat match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E end.
    rename H2 into T, H into A.
    assert (A1 : forall d, is_device n d = true -> pairwise apart (map share_box (to_device d shares)) = true).
    { intros d Hd. specialize (A d (proj2 (In_devices n d) Hd)). unfold check_arrivals in A. split_bool. auto. }
    split.
    - split; [|split; [|split]].
      + intros h Hh. destruct (travel_ok h (T h Hh)) as (Hs & Hd & _). apply is_holder_iff in Hs, Hd.
        split; [apply Hs|apply Hd].
      + intros h g Hh Hg. apply (travel_ok h (T h Hh)), Hg.
      + apply arrivals_apart; assumption.
      + intros r. destruct (in_dec Z.eq_dec r (map round shares)) as [I|I].
        * apply in_map_iff in I. destruct I as (h & <- & Hh). apply check_round_ok; auto.
        * rewrite in_round_other.
          -- repeat split; try constructor; contradiction.
          -- intros (h & Hh & E). apply I, in_map_iff; eauto.
    - intros d l Ha' Hl. unfold supply. rewrite supply_guard by assumption.
      pose proof (holder_device a d Ha') as Hd. apply is_holder_iff in Ha' as Ta. destruct Ta as [_ Ta].
      set (g := plus (oa d) l).
      assert (Lg : length g = length s).
      { apply inside_iff in Hl. destruct Hl as [Ll _]. pose proof (Loa d Hd). unfold g. rewrite length_plus; congruence. }
      assert (R : forall e, is_device n e = true -> in_box (ob e) tb g = true ->
                  inside tb (minus g (ob e)) = true /\ plus (ob e) (minus g (ob e)) = g).
      { intros e He Hg. split; [exact Hg|]. pose proof (Lob e He) as Le.
        assert (Lm : length (minus g (ob e)) = length s) by (rewrite length_minus; congruence).
        apply point_ext; rewrite length_plus by congruence; [congruence|].
        intros i Hi. rewrite nth_plus by congruence. rewrite nth_minus by congruence. lia. }
      destruct (find (fun h => (dst h =? d) && in_box (corner h) (extent h) g)%bool shares) as [h|] eqn:F.
      + apply find_some in F; destruct F as [F1 F2]. apply andb_prop in F2; destruct F2 as [F2 F3].
        apply Z.eqb_eq in F2. destruct (travel_ok h (T h F1)) as (Hs & _ & _ & _ & Hin).
        destruct (Hin g F3) as (Hg & _ & _). destruct (R _ (holder_device b _ Hs) Hg) as [R1 R2].
        exists (src h), (minus g (ob (src h))). repeat split; try assumption.
        right; exists h; auto.
      + assert (Hg : in_intervals (box_at (oa d) ta) g).
        { apply in_box_iff; [rewrite Loa by assumption; congruence|]. unfold in_box.
          replace (minus g (oa d)) with l; [exact Hl|]. apply inside_iff in Hl; destruct Hl as [Ll _].
          pose proof (Loa d Hd) as L2.
          symmetry; apply point_ext; rewrite length_minus by congruence; [congruence|].
          intros i Hi. rewrite nth_minus by congruence. unfold g; rewrite nth_plus by congruence. lia. }
        specialize (A d (proj2 (In_devices n d) Hd)). unfold check_arrivals in A. cbv zeta in A. rewrite Ta in A.
        cbn [negb] in A. split_bool.
        assert (Lbox : forall c, In c ((if has_tile b d then [box_at (ob d) tb] else []) ++ map share_box (to_device d shares)) ->
                       length c = length (box_at (oa d) ta)).
        { intros c Hc. rewrite length_box_at by (rewrite Loa by assumption; congruence). apply in_app_or in Hc.
          destruct Hc as [Hc|Hc].
          - destruct (has_tile b d); [|destruct Hc]. destruct Hc as [<-|[]].
            rewrite length_box_at; [congruence|]. rewrite Lob by assumption; congruence.
          - apply in_map_iff in Hc. destruct Hc as (h & <- & Hh). apply filter_In in Hh. destruct Hh as [Hh _].
            destruct (travel_ok h (T h Hh)) as (_ & _ & L1 & L2 & _). unfold share_box.
            rewrite length_box_at; congruence. }
        destruct (covered_ok _ _ g A Lbox Hg) as (c & Hc & Hcg). apply in_app_or in Hc. destruct Hc as [Hc|Hc].
        * destruct (has_tile b d) eqn:Tb; [|destruct Hc]. destruct Hc as [<-|[]].
          assert (Hb' : is_holder n b d = true) by (apply is_holder_iff; auto). apply in_box_iff in Hcg; [|rewrite Lob by assumption; congruence].
          destruct (R d Hd Hcg) as [R1 R2]. exists d, (minus g (ob d)). repeat split; try assumption. left; reflexivity.
        * exfalso. apply in_map_iff in Hc. destruct Hc as (h & <- & Hh). apply filter_In in Hh. destruct Hh as [Hh E].
          destruct (travel_ok h (T h Hh)) as (_ & _ & L1 & L2 & _). unfold share_box in Hcg.
          apply in_box_iff in Hcg; [|congruence].
          apply find_none with (x := h) in F; [|exact Hh]. rewrite E, Hcg in F. discriminate.
  Qed.

  Theorem action_ok x : check_action n s b a x = true -> collective_ok n s b a x /\ routed x.
  Proof.
    destruct x as [|groups|groups|pairs|how shares]; cbn [check_action collective_ok]; intros H.
    - split; [exact I|apply slice_ok, H].
    - split_bool. apply allgather_ok, H.
    - apply alltoall_ok, H.
    - apply permute_ok, H.
    - apply exchange_ok, H.
  Qed.
End Step.
