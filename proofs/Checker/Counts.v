(** * What a step is said to receive is what comes from other devices, element by element, and padding *)

From Coq Require Import ZArith List Bool Lia Arith.
From Redistrib.Checker Require Import Spec Check Vectors Steps.
Import ListNotations.
Open Scope Z_scope.
Open Scope lazy_bool_scope.

(** ** Counting *)

Definition count {A} (f : A -> bool) (l : list A) : Z := len (filter f l).

Lemma len_app {A} (l m : list A) : len (l ++ m) = len l + len m.
Proof. unfold len; rewrite app_length; lia. Qed.

Lemma count_app {A} (f : A -> bool) l m : count f (l ++ m) = count f l + count f m.
Proof. unfold count; rewrite filter_app; apply len_app. Qed.

Lemma count_cons {A} (f : A -> bool) x l : count f (x :: l) = (if f x then 1 else 0) + count f l.
Proof. unfold count, len; cbn [filter]. destruct (f x); cbn [length]; lia. Qed.

Lemma count_ext {A} (f g : A -> bool) l : (forall x, In x l -> f x = g x) -> count f l = count g l.
Proof. intros H; unfold count; rewrite (filter_ext_in f g l H); reflexivity. Qed.

Lemma count_none {A} (f : A -> bool) l : (forall x, In x l -> f x = false) -> count f l = 0.
Proof.
  induction l as [|x l IH]; intros H; [reflexivity|].
  rewrite count_cons, (H x (or_introl eq_refl)), IH; [reflexivity|]. intros; apply H; right; assumption.
Qed.

Lemma count_all {A} (f : A -> bool) l : (forall x, In x l -> f x = true) -> count f l = len l.
Proof.
  unfold len; induction l as [|x l IH]; intros H; [reflexivity|].
  rewrite count_cons, (H x (or_introl eq_refl)), IH; [cbn [length]; lia|]. intros; apply H; right; assumption.
Qed.

Lemma count_negb {A} (f : A -> bool) l : count (fun x => negb (f x)) l = len l - count f l.
Proof.
  unfold len; induction l as [|x l IH]; [reflexivity|].
  rewrite !count_cons, IH. cbn [length]. destruct (f x); cbn [negb]; lia.
Qed.

Lemma count_or {A} (f g : A -> bool) l : (forall x, In x l -> f x = true -> g x = false) ->
  count (fun x => f x || g x) l = count f l + count g l.
Proof.
  induction l as [|x l IH]; intros H; [reflexivity|].
  rewrite !count_cons, IH by (intros; apply H; [right|]; assumption).
  specialize (H x (or_introl eq_refl)). destruct (f x); [rewrite H by reflexivity|]; cbn [orb]; lia.
Qed.

Lemma count_range a b k : 0 <= a <= b -> b <= k -> count (fun x => (0 <=? x - a) && (x - a <? b - a)) (range k) = b - a.
Proof.
  intros Ha Hb. assert (G : forall m, count (fun x => (0 <=? x - a) && (x - a <? b - a)) (map Z.of_nat (seq 0 m)) =
                     Z.max 0 (Z.min b (Z.of_nat m) - a)).
  { induction m as [|m IH]; [simpl; unfold count, len; simpl; lia|].
    rewrite seq_S, map_app, count_app, IH. cbn [map plus Nat.add]. rewrite count_cons.
    unfold count at 1, len; cbn [filter length].
    destruct (Z.leb_spec 0 (Z.of_nat m - a)), (Z.ltb_spec (Z.of_nat m - a) (b - a)); cbn [andb]; lia. }
  unfold range; rewrite G. lia.
Qed.

Lemma count_cells_cons (p : Z -> bool) (q : point -> bool) f e es :
  (forall x l, f (x :: l) = p x && q l) -> count f (cells (e :: es)) = count p (range e) * count q (cells es).
Proof.
  intros H. change (cells (e :: es)) with (flat_map (fun c => map (cons c) (cells es)) (range e)).
  assert (G : forall x l, count f (map (cons x) l) = if p x then count q l else 0).
  { intros x l; induction l as [|y l IH]; cbn [map]; [destruct (p x); reflexivity|].
    rewrite !count_cons, H, IH. destruct (p x); cbn [andb]; lia. }
  induction (range e) as [|x xs IH]; [reflexivity|]. cbn [flat_map].
  rewrite count_app, count_cons, G, IH. destruct (p x); lia.
Qed.

Lemma In_cells e l : In l (cells e) -> inside e l = true.
Proof.
  revert l; induction e as [|x e IH]; intros l H; cbn [cells] in H.
  - destruct H as [<-|[]]; reflexivity.
  - apply in_flat_map in H. destruct H as (c & Hc & H). apply in_map_iff in H. destruct H as (r & <- & Hr).
    apply In_range in Hc. cbn [inside]. rewrite (IH r Hr), andb_true_r. apply andb_true_intro.
    split; [apply Z.leb_le|apply Z.ltb_lt]; lia.
Qed.

(** A box inside another has as many local indices as its volume. *)
Lemma count_box lo ext shape : length lo = length shape -> length ext = length shape ->
  (forall i, (i < length shape)%nat ->
     0 <= nth i lo 0 /\ 0 <= nth i ext 0 /\ nth i lo 0 + nth i ext 0 <= nth i shape 0) ->
  count (in_box lo ext) (cells shape) = prod ext.
Proof.
  revert lo ext; induction shape as [|s shape IH]; intros [|a lo] [|e ext] H1 H2 H; try discriminate; [reflexivity|].
  rewrite (count_cells_cons (fun x => (0 <=? x - a) && (x - a <? e)) (in_box lo ext)).
  - rewrite IH; [|simpl in *; lia|simpl in *; lia|intros i Hi; apply (H (S i)); simpl; lia].
    specialize (H 0%nat ltac:(simpl; lia)). cbn [nth] in H.
    pose proof (count_range a (a + e) s ltac:(lia) ltac:(lia)) as C.
    replace (a + e - a) with e in C by lia. rewrite C. reflexivity.
  - intros x l. reflexivity.
Qed.

Lemma len_cells e : (forall i, (i < length e)%nat -> 0 <= nth i e 0) -> len (cells e) = prod e.
Proof.
  induction e as [|x e IH]; intros H; [reflexivity|].
  rewrite <- (count_all (fun _ => true)) by reflexivity.
  rewrite (count_cells_cons (fun _ => true) (fun _ => true)) by reflexivity.
  rewrite !count_all by reflexivity. rewrite IH by (intros i Hi; apply (H (S i)); simpl; lia).
  unfold len, range; rewrite map_length, seq_length, Z2Nat.id by (apply (H 0%nat); simpl; lia). reflexivity.
Qed.

Lemma prod_times l m : length l = length m -> prod (times l m) = prod l * prod m.
Proof.
  revert m; induction l as [|x l IH]; intros [|y m] H; try discriminate; [reflexivity|].
  cbn [times zip prod fold_right]. fold (times l m). change (fold_right Z.mul 1 (times l m)) with (prod (times l m)).
  rewrite IH by (simpl in H; lia). unfold prod; cbn [fold_right]. lia.
Qed.

Lemma prod_nonneg e : (forall i, (i < length e)%nat -> 0 <= nth i e 0) -> 0 <= prod e.
Proof.
  induction e as [|x e IH]; intros H; [cbn; lia|]. change (prod (x :: e)) with (x * prod e).
  apply Z.mul_nonneg_nonneg; [apply (H 0%nat); simpl; lia|apply IH; intros i Hi; apply (H (S i)); simpl; lia].
Qed.

(** Every number below the product is that of a cell. *)
Lemma cell_of e k : (forall i, (i < length e)%nat -> 0 <= nth i e 0) -> 0 <= k < prod e ->
  exists c, inside e c = true /\ row_major e c = k.
Proof.
  revert k; induction e as [|x e IH]; intros k H Hk; [exists []; split; [reflexivity|]; cbn in *; lia|].
  change (prod (x :: e)) with (x * prod e) in Hk.
  assert (He : forall i, (i < length e)%nat -> 0 <= nth i e 0) by (intros i Hi; apply (H (S i)); simpl; lia).
  pose proof (prod_nonneg e He). assert (0 < prod e) by (destruct (Z.eq_dec (prod e) 0) as [E0|]; [rewrite E0 in Hk|]; lia).
  destruct (IH (k mod prod e) He ltac:(apply Z.mod_pos_bound; lia)) as (c & Hc & Ec).
  exists (k / prod e :: c). cbn [inside row_major]. rewrite Hc, Ec, andb_true_r. split.
  - apply andb_true_intro; split; [apply Z.leb_le, Z.div_pos; lia|apply Z.ltb_lt, Z.div_lt_upper_bound; lia].
  - pose proof (Z.div_mod k (prod e) ltac:(lia)). lia.
Qed.

Lemma lookup_of {A} (l : list A) x : In x l -> exists k, lookup l k = Some x.
Proof.
  induction l as [|y l IH]; intros []; [subst; exists 0; reflexivity|]. destruct (IH H) as [k Hk].
  pose proof (lookup_nonneg _ _ _ Hk). exists (k + 1). cbn [lookup].
  destruct (Z.eqb_spec (k + 1) 0); [lia|]. rewrite <- Hk; f_equal; lia.
Qed.

Lemma lookup_once {A} (l : list A) i j x : NoDup l -> lookup l i = Some x -> lookup l j = Some x -> i = j.
Proof.
  intros N; revert i j; induction N as [|y l Hy N IH]; intros i j Hi Hj; [discriminate|]. cbn [lookup] in Hi, Hj.
  destruct (Z.eqb_spec i 0), (Z.eqb_spec j 0); subst; try reflexivity.
  - injection Hi as ->. exfalso; eauto using lookup_In.
  - injection Hj as ->. exfalso; eauto using lookup_In.
  - specialize (IH _ _ Hi Hj); lia.
Qed.

Lemma NoDup_member {A} (groups : list (list A)) g : NoDup (concat groups) -> In g groups -> NoDup g.
Proof.
  induction groups as [|h r IH]; intros N []; cbn [concat] in N.
  - subst. revert N; generalize (concat r); clear. induction g as [|x g IH]; intros m N; [constructor|].
    cbn [app] in N. apply NoDup_cons_iff in N. destruct N as [N1 N2].
    constructor; [|exact (IH m N2)]. intros H; apply N1, in_or_app; left; exact H.
  - apply IH; [|assumption]. clear -N. induction h as [|x h IH]; [exact N|].
    cbn [app] in N. apply NoDup_cons_iff in N. apply IH, N.
Qed.

Lemma others_len d g : In d g -> others g = len g - 1.
Proof. destruct g as [|e g]; [intros []|]. intros _. cbn [others]. unfold len. cbn [length]. lia. Qed.

(** ** Steps *)

(** ** Padding *)

Lemma largest_ok h hs : In h hs -> prod (extent h) <= largest hs.
Proof.
  unfold largest. induction hs as [|k hs IH]; [intros []|]. intros [->|I]; cbn [map fold_right]; [lia|specialize (IH I); lia].
Qed.

Theorem padding_ok x d : 0 <= padding x d.
Proof.
  destruct x as [|groups|groups|pairs|how shares]; cbn [padding]; try lia.
  assert (F : forall h, In h (to_device d shares) -> 0 <= carried how shares h - prod (extent h)).
  { intros h Hh. apply filter_In in Hh. destruct Hh as [Hh _]. destruct how; cbn [carried]; [|lia].
    assert (I : In h (in_round (round h) shares)) by (apply filter_In; split; [exact Hh|apply Z.eqb_refl]).
    apply largest_ok in I. lia. }
  induction (to_device d shares) as [|h hs IH]; [reflexivity|]. change (sum (map ?f (h :: hs))) with (f h + sum (map f hs)).
  pose proof (F h (or_introl eq_refl)). specialize (IH (fun k Hk => F k (or_intror Hk))). cbv beta. lia.
Qed.

Lemma sum_less {A} (f g : A -> Z) l : sum (map f l) - sum (map (fun h => f h - g h) l) = sum (map g l).
Proof. induction l as [|h l IH]; [reflexivity|]. unfold sum in *. cbn [map fold_right] in *. lia. Qed.

Section Step.
  Variables (n : Z) (s : point) (b a : placement).
  Hypothesis (Hb : check_placement n s b = true) (Ha : check_placement n s a = true).

  Notation tb := (tile_of s b).
  Notation ta := (tile_of s a).
  Notation ob := (offset_of s b).
  Notation oa := (offset_of s a).

  Let Ltb := proj1 (placement_ok n s b Hb).
  Let Lta := proj1 (placement_ok n s a Ha).
  Let Ptb := proj1 (proj2 (placement_ok n s b Hb)).
  Let Pta := proj1 (proj2 (placement_ok n s a Ha)).
  Let Lob := proj2 (proj2 (placement_ok n s b Hb)).
  Let Loa := proj2 (proj2 (placement_ok n s a Ha)).

  Lemma Nta : forall i, (i < length ta)%nat -> 0 <= nth i ta 0.
  Proof. rewrite Lta; intros i Hi; specialize (Pta i Hi); lia. Qed.

  Lemma members_count chunk groups d : length chunk = length s ->
    (forall i, (i < length s)%nat -> 1 <= nth i chunk 0) ->
    check_members n s b a chunk groups = true -> is_holder n a d = true ->
    count (fun l => match from_member (group_of groups d) ta chunk l with
                    | Some (m, _) => negb (m =? d) | None => false end) (cells ta) =
    others (group_of groups d) * prod chunk.
  Proof.
    intros Lc Pc H Hd.
    destruct (members_ok n s b a Hb Ha chunk groups Lc Pc H) as ((Hn & _) & Hs & Hm).
    unfold check_members in H; split_bool.
    assert (Hp : partition (filter (has_tile b) (range n)) (concat groups) = true)
      by (unfold check_groups in *; split_bool; auto).
    assert (Hd' : is_holder n b d = true).
    { destruct (proj1 (is_holder_iff _ _ _) Hd) as [Q1 Q2]. apply is_holder_iff. rewrite <- Hs by exact Q1. auto. }
    destruct (group_of_ok _ groups d Hp (proj2 (In_holders n b d) Hd')) as [G1 G2].
    rewrite (others_len d) by exact G2.
    set (g := group_of groups d) in *. pose proof (NoDup_member _ _ Hn G1) as Ng.
    match goal with E : forallb (fun g => len g =? _) groups = true |- _ => rewrite forallb_forall in E;
      specialize (E _ G1); apply Z.eqb_eq in E; rename E into Eg end.
    match goal with E : divides chunk ta = true |- _ => apply divides_iff in E; destruct E as [_ Dv] end.
    rewrite Lc in Dv. set (f := quotient ta chunk) in *.
    assert (Lf : length f = length s) by (unfold f; rewrite length_quotient; congruence).
    assert (Ef : forall i, (i < length s)%nat -> nth i ta 0 = nth i f 0 * nth i chunk 0 /\ 1 <= nth i f 0).
    { intros i Hi. specialize (Dv i Hi). specialize (Pc i Hi). specialize (Pta i Hi).
      unfold f; rewrite nth_quotient by congruence.
      pose proof (proj2 (Z.div_exact (nth i ta 0) (nth i chunk 0) ltac:(lia)) Dv). nia. }
    assert (Et : ta = times f chunk).
    { apply point_ext; [rewrite length_times; congruence|]. intros i Hi.
      rewrite nth_times by congruence. apply Ef; congruence. }
    assert (Nf : forall i, (i < length f)%nat -> 0 <= nth i f 0).
    { rewrite Lf; intros i Hi. specialize (Ef i Hi). lia. }
    destruct (lookup_of g d G2) as [k0 Hk0].
    destruct (cell_of f k0 Nf) as (c0 & Hc0 & Ec0).
    { pose proof (lookup_nonneg _ _ _ Hk0). lia. }
    pose proof (proj1 (inside_iff _ _) Hc0) as [L0 B0].
    rewrite (count_ext _ (fun l => negb (in_box (times c0 chunk) chunk l))).
    - rewrite count_negb, len_cells by exact Nta. rewrite count_box.
      + rewrite Et at 1. rewrite prod_times by congruence. rewrite Eg. lia.
      + rewrite length_times; congruence.
      + congruence.
      + rewrite Lta; intros i Hi. rewrite nth_times by congruence.
        specialize (B0 i ltac:(congruence)). specialize (Pc i Hi). destruct (Ef i Hi) as [E _]. rewrite E. nia.
    - intros l Hl. apply In_cells in Hl. destruct (Hm d l Hd Hl) as (m & k & E & _). fold g in E. rewrite E. f_equal.
      unfold from_member in E. fold f in E.
      destruct (lookup g (row_major f (quotient l chunk))) as [m'|] eqn:El; [|discriminate].
      injection E as -> _. pose proof (proj1 (inside_iff _ _) Hl) as [Ll Bl].
      assert (Lq : length (quotient l chunk) = length s) by (rewrite length_quotient; congruence).
      assert (Q : in_box (times c0 chunk) chunk l = true <-> quotient l chunk = c0).
      { unfold in_box. rewrite inside_iff.
        assert (Lt : length (times c0 chunk) = length s) by (rewrite length_times; congruence).
        rewrite length_minus by congruence. rewrite Lc. split.
        - intros [_ Hi]. apply point_ext; [congruence|]. rewrite Lq; intros i Hlt. specialize (Hi i Hlt).
          rewrite nth_minus, nth_times in Hi by congruence. rewrite nth_quotient by congruence.
          symmetry; apply Z.div_unique_pos with (r := nth i l 0 - nth i c0 0 * nth i chunk 0); lia.
        - intros E. split; [congruence|]. intros i Hlt. rewrite nth_minus, nth_times by congruence.
          rewrite <- E, nth_quotient by congruence. specialize (Pc i Hlt).
          pose proof (Z.div_mod (nth i l 0) (nth i chunk 0) ltac:(lia)).
          pose proof (Z.mod_pos_bound (nth i l 0) (nth i chunk 0) ltac:(lia)). lia. }
      assert (Hq : inside f (quotient l chunk) = true).
      { apply inside_iff. split; [congruence|]. rewrite Lf. intros i Hi. rewrite nth_quotient by congruence.
        specialize (Bl i ltac:(congruence)). specialize (Pc i Hi). destruct (Ef i Hi) as [E _]. split.
        - apply Z.div_pos; lia.
        - apply Z.div_lt_upper_bound; [lia|]. lia. }
      destruct (Z.eqb_spec m d) as [E|E].
      + subst m. symmetry; apply Q. pose proof (lookup_once _ _ _ _ Ng El Hk0) as R. rewrite <- Ec0 in R.
        pose proof (lookup_cells _ _ Hq) as C1. pose proof (lookup_cells _ _ Hc0) as C2. congruence.
      + destruct (in_box (times c0 chunk) chunk l) eqn:F; [|reflexivity]. exfalso. apply E.
        rewrite (proj1 Q eq_refl), Ec0 in El. congruence.
  Qed.

  Lemma no_group chunk groups d : check_members n s b a chunk groups = true -> is_device n d = true ->
    has_tile a d = false -> group_of groups d = [].
  Proof.
    unfold check_members; intros H Hd Ta; split_bool.
    match goal with E : forallb (fun d => Bool.eqb _ _) _ = true |- _ => rewrite forallb_forall in E;
      specialize (E d (proj2 (In_devices n d) Hd)); apply Bool.eqb_prop in E; rename E into Tb end.
    unfold check_groups in *. split_bool.
    match goal with E : partition _ _ = true |- _ => apply partition_ok in E; destruct E as [_ P] end.
    unfold group_of. destruct (find (existsb (Z.eqb d)) groups) as [g|] eqn:F; [exfalso|reflexivity].
    apply find_some in F. destruct F as [F1 F2]. apply mem_In in F2.
    assert (I : In d (concat groups)) by (apply in_concat; eauto). apply P, In_holders, is_holder_iff in I.
    destruct I. congruence.
  Qed.

  Lemma share_count h d : check_travel n s b a h = true -> dst h = d ->
    count (fun l => in_box (corner h) (extent h) (plus (oa d) l)) (cells ta) = prod (extent h).
  Proof.
    intros T <-. destruct (travel_ok n s b a Hb Ha h T) as (_ & Hd' & L1 & L2 & _).
    pose proof (holder_device n _ _ Hd') as Hd.
    unfold check_travel in T; split_bool. pose proof (Loa _ Hd) as L3.
    match goal with E : within (share_box h) (box_at _ ta) = true |- _ => rename E into W end.
    match goal with E : forallb (Z.leb 1) (extent h) = true |- _ => rename E into P end.
    unfold within, share_box in W. apply (all2_iff _ _ _ (0, 0) (0, 0)) in W. destruct W as [_ W].
    rewrite length_box_at in W by congruence. rewrite L2 in W.
    assert (B : forall i, (i < length s)%nat ->
      nth i (oa (dst h)) 0 <= nth i (corner h) 0 /\
      nth i (corner h) 0 + nth i (extent h) 0 <= nth i (oa (dst h)) 0 + nth i ta 0).
    { intros i Hi. specialize (W i Hi). rewrite !nth_box_at in W by congruence. cbn [fst snd] in W. split_bool. lia. }
    assert (Q : forall i, (i < length s)%nat -> 1 <= nth i (extent h) 0).
    { intros i Hi. rewrite forallb_forall in P. apply Z.leb_le, P, nth_In. congruence. }
    rewrite (count_ext _ (in_box (minus (corner h) (oa (dst h))) (extent h))).
    - apply count_box; [rewrite length_minus; congruence|congruence|]. rewrite Lta; intros i Hi.
      rewrite nth_minus by congruence. specialize (B i Hi). specialize (Q i Hi). lia.
    - intros l Hl. apply In_cells, inside_iff in Hl. destruct Hl as [Ll _].
      assert (Lm : length (minus (corner h) (oa (dst h))) = length s) by (rewrite length_minus; congruence).
      assert (Lp : length (plus (oa (dst h)) l) = length s) by (rewrite length_plus; congruence).
      unfold in_box; f_equal. apply point_ext; rewrite !length_minus by congruence; [congruence|].
      rewrite Lp; intros i Hi. rewrite !nth_minus, nth_plus by congruence. lia.
  Qed.

  Lemma shares_count d hs : is_device n d = true ->
    (forall h, In h hs -> check_travel n s b a h = true /\ dst h = d) -> pairwise apart (map share_box hs) = true ->
    count (fun l => existsb (fun h => in_box (corner h) (extent h) (plus (oa d) l)) hs) (cells ta) =
    sum (map (fun h => prod (extent h)) hs).
  Proof.
    intros Hd; induction hs as [|h hs IH]; intros T P.
    - apply count_none; reflexivity.
    - cbn [map pairwise] in P. split_bool. cbn [existsb map]. rewrite count_or.
      + destruct (T h (or_introl eq_refl)) as [T1 T2]. rewrite (share_count h d T1 T2).
        rewrite IH; [reflexivity|intros; apply T; right; assumption|assumption].
      + intros l Hl F. destruct (existsb _ hs) eqn:E; [exfalso|reflexivity].
        apply existsb_exists in E. destruct E as (k & Hk & E).
        match goal with A : forallb (apart _) _ = true |- _ => rewrite forallb_forall in A;
          specialize (A (share_box k) (in_map share_box _ _ Hk)); rename A into Ap end.
        destruct (T h (or_introl eq_refl)) as [T1 _]. destruct (T k (or_intror Hk)) as [T2 _].
        destruct (travel_ok n s b a Hb Ha h T1) as (_ & _ & L1 & L2 & _).
        destruct (travel_ok n s b a Hb Ha k T2) as (_ & _ & L3 & L4 & _).
        apply in_box_iff in E; [|congruence]. apply in_box_iff in F; [|congruence].
        exact (apart_ok _ _ _ Ap F E).
  Qed.

  (** Who holds nothing after a step takes part in none of it as a receiver. *)
  Lemma nothing_received x d : check_action n s b a x = true -> is_device n d = true -> has_tile a d = false ->
    received s b a x d = 0 /\ padding x d = 0.
  Proof.
    intros H Hd Ta. destruct x as [|groups|groups|pairs|how shares]; cbn [check_action received padding] in *.
    - auto.
    - split_bool. split; [|reflexivity]. erewrite no_group; [reflexivity|eassumption..].
    - split; [|reflexivity]. erewrite no_group; [reflexivity|eassumption..].
    - split; [|reflexivity]. unfold check_permute in H. split_bool. rewrite forallb_forall in H.
      specialize (H d (proj2 (In_devices n d) Hd)). cbv zeta in H. split_bool.
      destruct (existsb (fun p => snd p =? d) pairs) eqn:X; [exfalso|reflexivity].
      apply existsb_exists in X. destruct X as (q & Q1 & Q2).
      destruct (find (fun p => snd p =? d) pairs) as [[m e]|] eqn:F.
      + apply find_some in F. destruct F as [F1 _].
        match goal with E : forallb (fun p => has_tile b (fst p)) pairs = true |- _ => rewrite forallb_forall in E;
          specialize (E _ F1); cbn [fst] in E; rename E into Tm end.
        match goal with E : Bool.eqb _ _ = true |- _ => apply Bool.eqb_prop in E; congruence end.
      + pose proof (find_none _ _ F q Q1) as N. cbn beta in N. congruence.
    - unfold check_exchange in H. split_bool.
      match goal with E : forallb (check_travel _ _ _ _) shares = true |- _ => rewrite forallb_forall in E; rename E into T end.
      destruct (to_device d shares) as [|h hs] eqn:E; [auto|]. exfalso.
      assert (I : In h (to_device d shares)) by (rewrite E; left; reflexivity).
      apply filter_In in I. destruct I as [I1 I2]. apply Z.eqb_eq in I2.
      destruct (travel_ok n s b a Hb Ha h (T h I1)) as (_ & Hh & _). apply is_holder_iff in Hh. destruct Hh. congruence.
  Qed.

  Theorem received_ok x d : check_action n s b a x = true -> is_device n d = true ->
    from_others n s b a x d = received s b a x d - padding x d.
  Proof.
    intros H Hd. destruct (has_tile a d) eqn:Ta.
    2: { destruct (nothing_received x d H Hd Ta) as [-> ->]. unfold from_others.
         apply count_none. intros l _. unfold supply, is_holder. rewrite Ta, andb_false_r. reflexivity. }
    assert (Ha' : is_holder n a d = true) by (apply is_holder_iff; auto).
    pose proof (action_ok n s b a Hb Ha x H) as [Hc Hr].
    change (count (fun l => match supply n s b a x d l with Some (m, _) => negb (m =? d) | None => false end) (cells ta)
            = received s b a x d - padding x d).
    assert (G : forall l, In l (cells ta) -> (is_holder n a d && inside ta l)%bool = true).
    { intros l Hl. rewrite Ha', (In_cells _ _ Hl); reflexivity. }
    destruct x as [|groups|groups|pairs|how shares]; cbn [check_action received padding collective_ok] in *;
      [rewrite Z.sub_0_r..|rewrite sum_less].
    - apply count_none. intros l Hl. unfold supply. rewrite (G l Hl), Z.eqb_refl. reflexivity.
    - split_bool. rewrite <- (members_count tb groups d Ltb Ptb H Ha'). apply count_ext. intros l Hl.
      unfold supply. rewrite (G l Hl). reflexivity.
    - rewrite <- (members_count _ groups d (Lsmaller n s b a Hb Ha) (Psmaller n s b a Hb Ha) H Ha'). apply count_ext.
      intros l Hl. unfold supply. rewrite (G l Hl). destruct (from_member _ _ _ l) as [[m k]|]; reflexivity.
    - destruct Hc as [(_ & _ & O) _]. unfold check_permute in H. split_bool.
      match goal with E : same ta tb = true |- _ => apply same_eq in E; rename E into Et end.
      destruct (existsb (fun p => snd p =? d) pairs) eqn:X.
      + rewrite <- Et, <- (len_cells ta Nta). apply count_all. intros l Hl. unfold supply. rewrite (G l Hl).
        destruct (find (fun p => snd p =? d) pairs) as [[m e]|] eqn:F.
        * apply find_some in F. destruct F as [F1 F2]. cbn [snd] in F2. apply Z.eqb_eq in F2. subst e.
          destruct (O _ _ F1) as (_ & _ & Hmd). destruct (Z.eqb_spec m d); [contradiction|reflexivity].
        * apply existsb_exists in X. destruct X as (q & Q1 & Q2).
          rewrite (find_none _ _ F q Q1) in Q2. discriminate.
      + apply count_none. intros l Hl. unfold supply. rewrite (G l Hl).
        destruct (find (fun p => snd p =? d) pairs) as [[m e]|] eqn:F; [|rewrite Z.eqb_refl; reflexivity].
        apply find_some in F. destruct F as [F1 F2].
        assert (Y : existsb (fun p => snd p =? d) pairs = true) by (apply existsb_exists; eauto). congruence.
    - destruct Hc as (_ & _ & _ & O). unfold check_exchange in H. split_bool.
      repeat match goal with E : forallb _ _ = true |- _ => rewrite forallb_forall in E end.
      match goal with E : forall h, In h shares -> check_travel _ _ _ _ h = true |- _ => rename E into T end.
      specialize (H d (proj2 (In_devices n d) Hd)). unfold check_arrivals in H. split_bool.
      rewrite <- (shares_count d); [|exact Hd| |assumption].
      + apply count_ext. intros l Hl. unfold supply. rewrite (G l Hl).
        destruct (find _ shares) as [h|] eqn:F.
        * apply find_some in F. destruct F as [F1 F2]. apply andb_prop in F2. destruct F2 as [F2 F3].
          apply Z.eqb_eq in F2. destruct (O (round h)) as (_ & _ & Od).
          destruct (Od (src h) (dst h)) as (_ & _ & Hne).
          { apply (in_map (fun h => (src h, dst h))), filter_In. split; [exact F1|apply Z.eqb_refl]. }
          destruct (Z.eqb_spec (src h) d) as [E|_]; [congruence|]. symmetry. apply existsb_exists.
          exists h. split; [apply filter_In; split; [exact F1|apply Z.eqb_eq; exact F2]|exact F3].
        * rewrite Z.eqb_refl. symmetry. destruct (existsb _ (to_device d shares)) eqn:E; [|reflexivity].
          apply existsb_exists in E. destruct E as (h & Hh & E). apply filter_In in Hh. destruct Hh as [X1 X2].
          pose proof (find_none _ _ F h X1) as N. cbn beta in N. rewrite X2, E in N. discriminate.
      + intros h Hh. apply filter_In in Hh. destruct Hh as [X1 X2]. split; [auto|apply Z.eqb_eq; exact X2].
  Qed.
End Step.
